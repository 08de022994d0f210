// bedplate doctor: is this node fit for training? Checks it without a job.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/output.h"
#include "doctor/node_check.h"
#include "doctor/render_text.h"
#include "host/recorded.h"

namespace bedplate::cli {
namespace {

struct DoctorOptions {
  std::string from;
  std::vector<std::string> thresholds;
  bool json = false;
};

int check(const DoctorOptions& options) {
  const auto thresholds = doctor::node_thresholds(options.thresholds);
  const auto root = host::open_machine(options.from);
  auto report = doctor::check_node(host::describe(root), &root, thresholds);
  report.version = version();
  print(options.json ? doctor::render_node_json(report)
                     : doctor::render_node_text(report, doctor::text_options_for(STDOUT_FILENO)));
  return report.fitness == doctor::Fitness::kNo ? kExitFindings : kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  app.add_flag("--json", options->json,
               "as JSON, with the names of a run's report; either way exit code 1 says: not fit");
  app.add_option("--from", options->from, "a recorded machine: a folder with proc/ and sys/")
      ->type_name("DIR");
  app.add_option("--threshold", options->thresholds,
                 "another bound, as KEY=NUMBER (may be repeated)");
  app.footer(
      "Ends with \"fit for training: yes / with remarks / no\"; exit code 1 for no, else 0.");
  return [options] { return check(*options); };
}

}  // namespace

extern const Command kDoctor = {
    .name = "doctor",
    .summary = "is this node fit for training: limits, memory, disks, links, kernel",
    .examples =
        "bedplate doctor\n"
        "bedplate doctor --json  # the same for scripts\n"
        "bedplate doctor --threshold disk_space.warning_share=0.9  # a bound of your own",
    .declare = declare,
    .group = kGroupMachine,
};

}  // namespace bedplate::cli
