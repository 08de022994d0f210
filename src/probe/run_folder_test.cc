#include "probe/run_folder.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <time.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "os/test_folder.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Code code_of(const fs::path& path) {
  try {
    const RunFolder folder(path);
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kInternal;
}

TEST(RunFolder, MakesParentsAndIsAbsolute) {
  const os::TestFolder root;
  const RunFolder folder(root.path() / "a/../b/c/");
  EXPECT_EQ(folder.path(), root.path() / "b/c");
  EXPECT_TRUE(fs::is_directory(root.path() / "b/c"));
}

TEST(RunFolder, AbandonedItTakesBackOnlyWhatItMade) {
  const os::TestFolder root;
  fs::create_directories(root.path() / "kept");
  RunFolder folder(root.path() / "kept/new/run");
  std::ofstream(folder.path() / "run.db") << "x";
  folder.abandon();
  EXPECT_TRUE(fs::is_empty(root.path() / "kept"));

  fs::create_directories(root.path() / "empty");
  RunFolder given(root.path() / "empty");
  std::ofstream(given.path() / "run.db") << "x";
  given.abandon();
  EXPECT_TRUE(fs::is_directory(root.path() / "empty"));
  EXPECT_TRUE(fs::is_empty(root.path() / "empty"));
}

TEST(RunFolder, RefusesWhatIsInUse) {
  const os::TestFolder root;
  fs::create_directories(root.path() / "run");
  std::ofstream(root.path() / "run/run.db") << "x";
  std::ofstream(root.path() / "file") << "x";
  EXPECT_EQ(code_of(root.path() / "run"), Code::kExists);
  EXPECT_EQ(code_of(root.path() / "file"), Code::kExists);
  EXPECT_EQ(code_of(root.path() / "file/below"), Code::kNotFound);
  EXPECT_EQ(code_of(""), Code::kInvalid);
  EXPECT_TRUE(fs::exists(root.path() / "run/run.db"));
}

TEST(RunFolder, RefusesNamesThatNoFileInItCouldHave) {
  const os::TestFolder root;
  const auto refusal = [](const std::filesystem::path& path) -> std::string {
    try {
      RunFolder folder(path);
      return "none";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      return error.what();
    }
  };
  EXPECT_THAT(refusal(root.path() / "new" / std::string(300, 'a')),
              testing::HasSubstr("has 300 bytes (aaaa"));
  EXPECT_EQ(refusal(root.path() / std::string(255, 'a')), "none");
  std::filesystem::path deep = root.path();
  while (deep.native().size() < 4000) deep /= std::string(100, 'b');
  EXPECT_THAT(refusal(deep), testing::AllOf(testing::HasSubstr("at most 3967 are possible"),
                                            testing::Not(testing::HasSubstr("bbbb"))));
  EXPECT_FALSE(std::filesystem::exists(root.path() / "new"));
  EXPECT_FALSE(std::filesystem::exists(root.path() / std::string(100, 'b')));
}

TEST(RunFolder, NamesAreSortedByTime) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(default_run_name(1'738'333'503 * kSecond, 4242), "bedplate-run-20250131-142503-4242");
}

TEST(RunFolder, IsTriedHereAndThenInTheTemporaryFolder) {
  ::setenv("TMPDIR", "/somewhere", 1);
  EXPECT_THAT(run_folder_candidates(std::nullopt, "n"), ElementsAre("n", "/somewhere/n"));
  EXPECT_THAT(run_folder_candidates("out", "n"), ElementsAre("out", "/somewhere/n"));
  ::setenv("TMPDIR", "", 1);
  EXPECT_THAT(run_folder_candidates(std::nullopt, "n"), ElementsAre("n", "/tmp/n"));
  ::unsetenv("TMPDIR");
}

TEST(WriteHook, WritesAllFilesByteForByte) {
  const os::TestFolder root;
  const std::string bytes("a\0b\n", 4);
  const EmbeddedFile files[] = {{"sitecustomize.py", "x"}, {"package/inner.py", bytes}};
  EXPECT_EQ(write_hook(root.path(), files), root.path() / "hook");
  std::ifstream in(root.path() / "hook/package/inner.py", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), bytes);
}

TEST(JobEnvironment, PutsTheHookFirstAndReplacesAnOuterRuns) {
  const std::vector<std::string> before = {"A=1", "PYTHONPATH=/old:/er", "BEDPLATE_TRACE=/outer",
                                           "BEDPLATE_RUN=/outer", "B=PYTHONPATH=/x"};
  EXPECT_THAT(job_environment(before, "/run", "/proc/1/fd/7", "/run/hook"),
              ElementsAre("A=1", "B=PYTHONPATH=/x", "BEDPLATE_TRACE=/proc/1/fd/7",
                          "BEDPLATE_RUN=/run", "PYTHONPATH=/run/hook:/old:/er"));
}

TEST(JobEnvironment, WithoutAHookThePathIsLeftAlone) {
  const std::vector<std::string> before = {"PYTHONPATH=/old"};
  EXPECT_THAT(job_environment(before, "/run", "t", ""),
              ElementsAre("PYTHONPATH=/old", "BEDPLATE_TRACE=t", "BEDPLATE_RUN=/run"));
}

// An empty element would put the working folder on Python's path.
TEST(JobEnvironment, AnEmptyPathAddsNoEmptyElement) {
  const std::vector<std::string> before = {"PYTHONPATH="};
  EXPECT_THAT(job_environment(before, "/run", "t", "/run/hook"),
              ElementsAre("BEDPLATE_TRACE=t", "BEDPLATE_RUN=/run", "PYTHONPATH=/run/hook"));
}

}  // namespace
}  // namespace bedplate::probe
