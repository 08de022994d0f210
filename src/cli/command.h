// One sub-command of `bedplate`: one file in commands/ that ends in a Command. It declares its options, calls a room, prints,
// and returns the exit code; anything worth testing lives in a room.
//
//   std::function<int()> declare(CLI::App& app) {
//     auto options = std::make_shared<ReportOptions>();           // lives as long as the returned function
//     app.add_option("RUN", options->run, "run folder")->required();
//     return [options] { return print_report(*options); };
//   }
//   extern const Command kReport = {.name = "report", .summary = "…", .examples = "…", .declare = declare};
#pragma once

#include <functional>
#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace bedplate::cli {

// Exit codes of every command but `run`, which ends as its job did.
constexpr int kExitFine = 0;
constexpr int kExitFindings = 1;
constexpr int kExitUsage = 2;
constexpr int kExitEnvironment = 3;
constexpr int kExitInternal = 4;

struct Command {
  std::string_view name;
  std::string_view summary;   // one line, lower case, no full stop
  std::string_view examples;  // one shell command a line, "  # what it shows" may follow; tests run them
  std::function<int()> (*declare)(CLI::App& app);
};

std::span<const Command* const> all_commands();

}  // namespace bedplate::cli
