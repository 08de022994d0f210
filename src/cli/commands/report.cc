// bedplate report: judges a recorded run again and shows it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/output.h"
#include "doctor/judge.h"
#include "doctor/render_html.h"
#include "doctor/render_json.h"
#include "doctor/render_text.h"
#include "doctor/render_trace.h"
#include "os/durable_file.h"
#include "probe/run_file.h"

namespace bedplate::cli {
namespace {

struct ReportOptions {
  std::string run;
  std::string json;  // "-": standard output
  std::string html;
  std::string trace;
  std::string config;
  bool exit_code = false;
};

// "--json RUN": CLI11 takes RUN for the file, for it cannot know that none was meant.
void sort_out(ReportOptions& options) {
  if (!options.run.empty()) return;
  std::error_code error;
  if (options.json.empty() || options.json == "-" ||
      !std::filesystem::exists(options.json, error)) {
    throw Error(Code::kInvalid, "which run? give the folder that `bedplate run` printed");
  }
  options.run = options.json;
  options.json = "-";
}

std::string file_name(const std::string& path) { return path == "-" ? "/dev/stdout" : path; }

int report(ReportOptions options) {
  sort_out(options);
  check_report_files(std::array{options.json, options.html, options.trace});
  const Config config = load_config(options.config);
  const probe::RunData run = probe::read_run(options.run);
  const doctor::Report report = doctor::judge(run, config.thresholds);
  if (options.json.empty() && options.html.empty() && options.trace.empty()) {
    print(doctor::render_text(report, run, doctor::text_options_for(STDOUT_FILENO)));
  }
  if (!options.json.empty()) os::write_output(file_name(options.json), doctor::render_json(report));
  if (!options.html.empty())
    os::write_output(file_name(options.html), doctor::render_html(report, run));
  if (!options.trace.empty()) {
    os::write_output(file_name(options.trace),
                     [&](const os::WritePiece& write) { doctor::write_trace(report, run, write); });
  }
  const bool found = report.verdict == doctor::Verdict::kFinding;
  return options.exit_code && found ? kExitFindings : kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  app.add_option("RUN", options->run, "run folder, or its run.db");
  app.add_option_function<std::string>(
         "--json",
         [options](const std::string& file) { options->json = file.empty() ? "-" : file; },
         "the report as JSON, to FILE or to standard output")
      ->expected(0, 1)
      ->default_str("-")
      ->type_name("[FILE]");
  app.add_option("--html", options->html, "the report as one HTML page; - is standard output")
      ->type_name("FILE");
  app.add_option("--trace", options->trace,
                 "the run as a trace for ui.perfetto.dev; - is standard output")
      ->type_name("FILE");
  app.add_flag("--exit-code", options->exit_code, "exit with 1 when a cause was found");
  add_config_option(app, options->config);
  return [options] { return report(*options); };
}

}  // namespace

extern const Command kReport = {
    .name = "report",
    .summary = "judge a recorded run again and show it as text, JSON, a page or a trace",
    .examples =
        "bedplate report before\n"
        "bedplate report before --html report.html --trace trace.json\n"
        "bedplate report before --json  # for scripts",
    .declare = declare,
    .group = kGroupRuns,
};

}  // namespace bedplate::cli
