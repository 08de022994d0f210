// bedplate host: what the machine is, as one drawing.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "doctor/node_check.h"
#include "doctor/render_text.h"
#include "host/draw.h"
#include "host/host_json.h"
#include "host/recorded.h"
#include "os/durable_file.h"

namespace bedplate::cli {
namespace {

struct HostOptions {
  std::string from;
  std::string svg;
  bool json = false;
  bool ascii = false;
};

int show(const HostOptions& options) {
  const auto root = host::open_machine(options.from);
  const auto machine = host::describe(root);
  const auto marks = doctor::marks_of(doctor::check_node(machine, &root));
  if (!options.svg.empty()) os::write_output(options.svg, host::draw_svg(machine, marks) + "\n");
  if (options.json) {
    print(host::to_json(machine) + "\n");
  } else if (options.svg.empty()) {
    const auto style = doctor::text_options_for(STDOUT_FILENO);
    print(host::draw_text(
        machine, marks,
        {.columns = std::max(60, static_cast<int>(style.columns)),
         .charset = options.ascii ? host::Charset::kAscii : host::Charset::kUnicode}));
  }
  return kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<HostOptions>();
  app.add_flag("--json", options->json, "all of it as JSON");
  app.add_option("--svg", options->svg, "write the drawing to this file instead of the terminal")
      ->type_name("FILE");
  app.add_flag("--ascii", options->ascii, "draw with - | + only");
  app.add_option("--from", options->from, "a recorded machine: a folder with proc/ and sys/")
      ->type_name("DIR");
  return [options] { return show(*options); };
}

}  // namespace

extern const Command kHost = {
    .name = "host",
    .summary = "what the machine is: processors, caches, NUMA, GPUs, networks, disks, limits",
    .examples =
        "bedplate host\n"
        "bedplate host --json  # the same with all details, for scripts\n"
        "bedplate host --svg machine.svg  # the drawing for a page",
    .declare = declare,
    .group = kGroupMachine,
};

}  // namespace bedplate::cli
