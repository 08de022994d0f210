// Recorded runs under tests/golden/, judged and rendered again: byte for byte what is kept beside
// them. A change of a rule that moves a figure of an old run shows here; tools/update_golden.sh
// accepts it.
#include <gmock/gmock.h>

#include <algorithm>

#include "doctor/golden_text.h"
#include "doctor/judge.h"
#include "doctor/render_html.h"
#include "doctor/render_json.h"
#include "doctor/render_text.h"
#include "doctor/render_trace.h"
#include "os/test_folder.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(BEDPLATE_SOURCE_DIR) / "tests/golden";

std::vector<fs::path> recorded_runs() {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kGolden, error)) {
    if (fs::exists(entry.path() / "run.db")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A copy: reading a database may leave files beside it, and the repository may be read-only.
probe::RunData read_copy(const fs::path& run, const fs::path& folder) {
  fs::create_directories(folder);
  fs::copy_file(run / "run.db", folder / "run.db", fs::copy_options::overwrite_existing);
  return probe::read_run(folder);
}

TEST(GoldenRuns, AreJudgedAsTheyWere) {
  const os::TestFolder folder;
  const auto runs = recorded_runs();
  ASSERT_FALSE(runs.empty()) << kGolden << " holds no recorded run";
  for (const auto& run : runs) {
    const probe::RunData data = read_copy(run, folder.path() / run.filename());
    const Report report = judge(data);
    expect_golden(render_json(report), run / "report.json");
    expect_golden(render_text(report, data), run / "report.txt");
  }
}

TEST(GoldenRuns, GiveTheSameReportEveryTime) {
  const os::TestFolder folder;
  for (const auto& run : recorded_runs()) {
    const probe::RunData data = read_copy(run, folder.path() / run.filename());
    const Report report = judge(data);
    EXPECT_EQ(render_html(report, data), render_html(judge(data), data)) << run;
    EXPECT_EQ(render_trace(report, data), render_trace(judge(data), data)) << run;
  }
}

TEST(GoldenRuns, AreSmall) {
  for (const auto& run : recorded_runs())
    EXPECT_LT(fs::file_size(run / "run.db"), 300U * 1024) << run;
}

}  // namespace
}  // namespace bedplate::doctor
