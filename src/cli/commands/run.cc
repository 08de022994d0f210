// bedplate run: runs a job unchanged, records it, and says which walls it hit.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/hook_files.h"
#include "cli/live_line.h"
#include "cli/output.h"
#include "doctor/judge.h"
#include "doctor/render_html.h"
#include "doctor/render_json.h"
#include "doctor/render_text.h"
#include "os/durable_file.h"
#include "probe/record.h"

namespace bedplate::cli {
namespace {

struct RunOptions {
  std::string folder;
  std::string json;
  std::string html;
  std::string config;
  bool quiet = false;
  double hz = 2;
};

bool is_stdout(const std::string& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

void write_report(const std::string& path, std::string_view bytes) {
  if (is_stdout(path)) {
    print(bytes);
  } else {
    check_report_files(std::array{path});  // the run's own, by now
    os::write_output(path, bytes);
  }
}

// Reads the run back, judges it, and hands out what was asked for. A failure here is told and
// leaves the job's exit code alone: the run itself is safe in its folder.
void report(const RunOptions& options, const Config& config, const std::filesystem::path& folder) {
  const auto attempt = [](std::string_view what, const std::function<void()>& act) {
    try {
      act();
    } catch (const std::exception& error) {
      say(fmt::format("{}: {}", what, to_utf8(error.what())));
    }
  };
  attempt("no report", [&] {
    const auto run = probe::read_run(folder);
    const auto judged = doctor::judge(run, config.thresholds);
    attempt("no report on the terminal", [&] {
      const auto style = doctor::text_options_for(STDERR_FILENO);
      tell(doctor::render_text(judged, run, style));
    });
    if (!options.json.empty()) {
      attempt("no JSON report", [&] { write_report(options.json, doctor::render_json(judged)); });
    }
    if (!options.html.empty()) {
      attempt("no HTML report",
              [&] { write_report(options.html, doctor::render_html(judged, run)); });
    }
  });
}

int run(const RunOptions& options, std::vector<std::string> job) {
  const Config config =
      load_config(options.config);  // before the job starts: a mistake costs no run
  check_report_files(std::array{options.json, options.html});
  os::Supervisor supervisor;
  probe::RecordOptions recording_options;
  recording_options.arguments = std::move(job);
  if (!options.folder.empty()) recording_options.folder = options.folder;
  recording_options.hz = options.hz;
  recording_options.version = version();
  recording_options.hook = hook_files();
  recording_options.keep_stdout = is_stdout(options.json) || is_stdout(options.html);

  bool interrupted = false;
  os::Ended ended{};
  {
    probe::Recording recording(supervisor, std::move(recording_options));
    const auto early = recording.remarks();
    for (const auto& remark : early) say(remark);
    if (const auto failure = recording.start()) {
      say(failure->text);
      return failure->exit_code;
    }
    {
      LiveLine line(STDERR_FILENO, [&](std::string_view undo) { supervisor.last_words(undo); });
      probe::Recording::Live live;
      if (!options.quiet && line.able()) {
        live.show = [&line](const probe::CollectorStatus& status) { line.show(status); };
        live.pause = [&line] { line.hide(); };
      }
      ended = recording.wait(live);
    }
    const std::string folder = to_utf8(recording.folder().native());
    supervisor.let_signals_end_us(
        ended.exit_code(),
        fmt::format("bedplate: report abandoned; the run is in {0}: bedplate report {0}\n",
                    folder));
    interrupted = supervisor.interrupted();
    report(options, config, recording.folder());
    const auto all = recording.remarks();
    for (std::size_t i = early.size(); i < all.size(); ++i) say(all[i]);
    std::error_code error;
    const bool kept = std::filesystem::exists(recording.folder(), error);
    say(kept ? fmt::format("run kept in {}", folder)
             : fmt::format("the run folder {} was removed while the job ran", folder));
  }
  os::end_as(ended, interrupted);
}

std::function<int(std::vector<std::string>)> declare(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  app.add_option(
         "--out", options->folder,
         "folder to keep the run in; must not exist yet or be empty (default: "
         "bedplate-run-DATE-TIME-PID here, or in $TMPDIR when this folder cannot be written)")
      ->type_name("DIR");
  app.add_option("--json", options->json, "also write the report as JSON; - is standard output")
      ->type_name("FILE");
  app.add_option("--html", options->html, "also write the report as one HTML page")
      ->type_name("FILE");
  add_config_option(app, options->config);
  app.add_flag("-q,--quiet", options->quiet, "no live line while the job runs");
  app.add_option("--hz", options->hz, "samples a second, 0.1 to 20 (default: 2)")
      ->type_name("N")
      ->check([](const std::string& text) {
        const auto hz = to_double(text);
        return hz && *hz >= 0.1 && *hz <= 20.0 ? std::string()
                                               : text + " is not a number from 0.1 to 20";
      });
  return [options](std::vector<std::string> job) { return run(*options, std::move(job)); };
}

}  // namespace

extern const Command kRun = {
    .name = "run",
    .summary = "run a job unchanged and say which walls it hit, what each costs and how to mend it",
    .examples =
        "bedplate run -- python train.py\n"
        "bedplate run --html report.html -- torchrun --nproc-per-node 2 train.py",
    .declare_with_job = declare,
    .group = kGroupRuns,
};

}  // namespace bedplate::cli
