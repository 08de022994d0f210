// The parts; the program as a whole is tested from outside: tests/e2e/test_cli.py.
#include "cli/program.h"

#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/completion.h"
#include "cli/hook_files.h"

namespace bedplate::cli {
namespace {

namespace fs = std::filesystem;

// The members of families too.
std::vector<const Command*> every_command() {
  std::vector<const Command*> all;
  for (const auto* command : all_commands()) {
    all.push_back(command);
    if (!command->family) continue;
    for (const auto* member : command->family()) {
      EXPECT_TRUE(member->name.starts_with(fmt::format("{} ", command->name))) << member->name;
      all.push_back(member);
    }
  }
  return all;
}

TEST(Commands, AreCompleteAndUnlikeEachOther) {
  std::set<std::string_view> names;
  for (const auto* command : every_command()) {
    EXPECT_TRUE(names.insert(command->name).second) << command->name;
    EXPECT_FALSE(command->summary.empty()) << command->name;
    EXPECT_FALSE(command->summary.ends_with(".")) << command->name;
    const int ways = (command->declare != nullptr) + (command->declare_with_job != nullptr) +
                     (command->family != nullptr);
    EXPECT_EQ(ways, 1) << command->name;
    for (const auto line : split(command->examples, '\n')) {
      if (!trim(line).empty()) {
        EXPECT_TRUE(trim(line).starts_with("bedplate ")) << line;
      }
    }
  }
  EXPECT_TRUE(names.contains("run"));
}

TEST(Commands, EachOptionSaysWhatItDoes) {
  for (const auto* command : every_command()) {
    const auto app = declared_options(*command);
    for (const auto* option : app->get_options()) {
      EXPECT_FALSE(option->get_description().empty()) << command->name << " " << option->get_name();
    }
  }
}

TEST(Help, FitsOneHundredColumns) {
  const std::string text = help_text();
  for (const auto line : split(text, '\n')) EXPECT_LE(display_width(line), 100u) << line;
}

TEST(Completion, KnowsEveryCommandAndOptionInEachShell) {
  for (const auto* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(shell);
    for (const auto* command : every_command()) {
      EXPECT_THAT(script, ::testing::HasSubstr(std::string(command->last_name()))) << shell;
      const auto app = declared_options(*command);
      for (const auto* option : app->get_options()) {
        for (const auto& name : option->get_lnames()) {
          EXPECT_THAT(script, ::testing::HasSubstr(name)) << shell;
        }
      }
    }
  }
  EXPECT_THROW(completion_script("tcsh"), Error);
}

TEST(BuildInfo, SaysWhyAFeatureIsOff) {
  EXPECT_FALSE(version().empty());
  EXPECT_FALSE(features().empty());
  for (const auto& feature : features()) {
    EXPECT_TRUE(feature.on || !feature.note.empty()) << feature.name;
  }
}

// The hook that is built in is the one in the source tree, whole.
TEST(HookFiles, AreAllThatLieInTheHooksFolder) {
  const fs::path root = fs::path(BEDPLATE_SOURCE_DIR) / "python/bedplate/hook";
  std::map<std::string, std::string> expected;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".py") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    expected[fs::relative(entry.path(), root).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  std::map<std::string, std::string> built_in;
  for (const auto& file : hook_files()) built_in[std::string(file.path)] = std::string(file.bytes);
  ASSERT_EQ(built_in.size(), expected.size()) << "a file is missing in src/cli/CMakeLists.txt";
  EXPECT_EQ(built_in, expected);
}

}  // namespace
}  // namespace bedplate::cli
