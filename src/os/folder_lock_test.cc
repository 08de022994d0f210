#include "os/folder_lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "os/durable_file.h"
#include "os/test_folder.h"

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Deadline at_once() { return Deadline::after(0); }
Deadline soon() { return Deadline::after(20 * kSecond); }

std::string refusal(const fs::path& folder) {
  try {
    FolderLock::take(folder, at_once());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kExists);
    return error.what();
  }
  return "taken";
}

TEST(FolderLock, TheSecondIsToldWhoHasItAndNothingStaysBehind) {
  const TestFolder folder;
  {
    const auto lock = FolderLock::take(folder.path(), at_once());
    ASSERT_NE(lock, nullptr);
    EXPECT_THAT(refusal(folder.path()), HasSubstr(fmt::format("process {} on ", ::getpid())));
    EXPECT_EQ(DurableFile::remove_abandoned(folder.path()), 0);
    for (const auto& entry : fs::directory_iterator(folder.path()))
      EXPECT_TRUE(DurableFile::is_temporary(entry.path().filename().string()));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(refusal(folder.path()), "taken");
}

TEST(FolderLock, MissingFoldersAreMadeAndRemovedIfTheyStayEmpty) {
  const TestFolder folder;
  const fs::path deep = folder.path() / "a" / "b" / "";
  { EXPECT_NE(FolderLock::take(deep, at_once()), nullptr); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  {
    const auto lock = FolderLock::take(deep, at_once());
    write_durably(deep / "x", "kept");
  }
  EXPECT_TRUE(fs::exists(deep / "x"));
}

TEST(FolderLock, ItEndsWithAKilledProcess) {
  const TestFolder folder;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::take(folder.path(), soon());
    [[maybe_unused]] const auto told = ::write(pipe[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  EXPECT_THAT(refusal(folder.path()), HasSubstr(fmt::format("process {} on ", child)));
  ::kill(child, SIGKILL);
  // It need not have come to its end: the lock is waited for.
  EXPECT_NE(FolderLock::take(folder.path(), soon()), nullptr);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FolderLock, AfterForkItStaysTheParents) {
  const TestFolder folder;
  auto lock = FolderLock::take(folder.path(), at_once());
  const pid_t child = ::fork();
  if (child == 0) {
    lock.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(refusal(folder.path()), "taken");
  lock.reset();
  EXPECT_EQ(refusal(folder.path()), "taken");
}

// With somebody beside them who removes what is abandoned, and folders that come and go.
TEST(FolderLock, OfManyOneHasIt) {
  const TestFolder folder;
  const fs::path place = folder.path() / "made" / "and" / "removed";
  std::atomic<int> inside{0};
  std::atomic<int> times{0};
  std::atomic<bool> ended{false};
  std::jthread cleaner([&] {
    while (!ended) DurableFile::remove_abandoned(place);
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const auto lock = FolderLock::take(place, soon());
          EXPECT_NE(lock, nullptr);
          EXPECT_EQ(++inside, 1);
          ++times;
          --inside;
        }
      });
    }
  }
  ended = true;
  EXPECT_EQ(times, 80);
}

TEST(FolderLock, WhereNothingCanBeWrittenThereIsNone) {
  EXPECT_EQ(FolderLock::take("/sys/kernel", at_once()), nullptr);
}

}  // namespace
}  // namespace bedplate::os
