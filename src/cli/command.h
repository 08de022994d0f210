// One sub-command of `bedplate`: one file in commands/ that ends in a Command. It declares its
// options, calls a room, prints, and returns the exit code; anything worth testing lives in a room.
//
//   std::function<int()> declare(CLI::App& app) {
//     auto options = std::make_shared<ReportOptions>();           // lives as long as the function
//     app.add_option("RUN", options->run, "run folder")->required();
//     return [options] { return print_report(*options); };
//   }
//   extern const Command kReport = {.name = "report", .summary = "…", .examples = "…", .declare =
//   declare};
//
// and one line in CMakeLists.txt: bedplate_part(cli commands commands/report.cc kReport).
// One of a family: bedplate_part(cli data_commands commands/data_pack.cc kDataPack).
// An Error that leaves the function is printed, and becomes exit code 2, 3 or 4 by its code.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  std::string_view summary;  // one line, lower case, no full stop
  std::string_view
      examples;  // one shell command a line, "  # what it shows" may follow; tests run them
  std::function<int()> (*declare)(CLI::App& app) = nullptr;

  // Instead of `declare`, for a command that starts another: "bedplate NAME [options] -- COMMAND…".
  // What follows the first "--" is never parsed and reaches the function byte for byte.
  std::function<int(std::vector<std::string> job)> (*declare_with_job)(CLI::App& app) = nullptr;

  // Instead of both, for a command that is a family: "bedplate data pack". Each of them is a
  // Command of its own whose name begins with the family's: "data pack".
  std::span<const Command* const> (*family)() = nullptr;

  std::string_view group = "More";  // heading in `bedplate --help`
  // What follows "[options]" in the usage line, where the arguments do not say it: "SRC… DST".
  std::string_view usage = {};

  // "pack" of "data pack".
  std::string_view last_name() const { return name.substr(name.rfind(' ') + 1); }
};

// Headings of `bedplate --help`.
inline constexpr std::string_view kGroupRuns = "Find the wall of a job";
inline constexpr std::string_view kGroupData = "Put data where it is read fast";
inline constexpr std::string_view kGroupMachine = "Look at a machine";
inline constexpr std::string_view kGroupSelf = "About bedplate";

std::span<const Command* const> all_commands();
std::span<const Command* const> all_data_commands();
std::span<const Command* const> all_cache_commands();

}  // namespace bedplate::cli
