#include "os/durable_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "os/test_folder.h"

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(WriteDurably, ReplacesTheOldFile) {
  const TestFolder folder;
  write_durably(folder.path() / "a", "old");
  write_durably(folder.path() / "a", "new");
  EXPECT_EQ(contents(folder.path() / "a"), "new");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(WriteDurably, AFailedWriteKeepsTheOldFileAndLeavesNoTemporary) {
  const TestFolder folder;
  write_durably(folder.path() / "a", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{16, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  EXPECT_THROW(write_durably(folder.path() / "a", std::string(4096, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(contents(folder.path() / "a"), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(WriteDurably, SaysWhichFileAndWhy) {
  try {
    write_durably("/proc/no-such-folder/a", "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/proc/no-such-folder/a"));
  }
}

TEST(WriteOutput, WritesStraightToWhatIsNoRegularFile) { EXPECT_NO_THROW(write_output("/dev/null", "x")); }

}  // namespace
}  // namespace bedplate::os
