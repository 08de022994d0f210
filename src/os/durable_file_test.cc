#include "os/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "base/error.h"
#include "os/host_root.h"
#include "os/test_folder.h"
#include "os/unique_fd.h"

namespace {

// What happens at the moment of a rename or link, before it; and what renameat2() fails with, if
// not 0.
std::function<void()> before_rename;
int no_rename_to_new = 0;

}  // namespace

// In place of the C library's, for the whole of these tests.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (before_rename) before_rename();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (before_rename) before_rename();
  if (no_rename_to_new != 0) {
    errno = no_rename_to_new;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
extern "C" int link(const char* from, const char* to) noexcept {
  if (before_rename) before_rename();
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
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

TEST(DurableFile, AppearsByCommitOrLeavesNothing) {
  const TestFolder folder;
  const auto path = folder.path() / "a";
  {
    DurableFile dropped(path);
    dropped.write("half");
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(DurableFile::is_temporary(
        fs::directory_iterator(folder.path())->path().filename().string()));
  }
  EXPECT_EQ(files_in(folder.path()), 0u);
  DurableFile file(path);
  file.write("who");
  file.write("le");
  file.commit();
  EXPECT_EQ(contents(path), "whole");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(DurableFile, RefusesToReplaceWhatCameMeanwhile) {
  const TestFolder folder;
  const auto path = folder.path() / "a";
  DurableFile file(path);
  file.write("mine");
  write_durably(path, "another's");
  try {
    file.commit(DurableFile::IfExists::kRefuse);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kExists);
  }
  EXPECT_EQ(contents(path), "another's");
}

TEST(DurableFile, TakesTheLongestNameThereIs) {
  const TestFolder folder;
  const auto path = folder.path() / std::string(255, 'n');
  write_durably(path, "x");
  EXPECT_EQ(contents(path), "x");
}

TEST(WriteOutput, WritesStraightToWhatIsNoRegularFile) {
  EXPECT_NO_THROW(write_output("/dev/null", "x"));
}

TEST(WriteOutput, ALinkStaysAndItsTargetIsReplaced) {
  const TestFolder folder;
  const auto target = folder.path() / "target";
  write_durably(target, "old");
  fs::create_symlink("target", folder.path() / "link");
  write_output(folder.path() / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(contents(target), "new");
  fs::create_symlink("not-yet", folder.path() / "dangling");
  write_output(folder.path() / "dangling", "made");
  EXPECT_EQ(contents(folder.path() / "not-yet"), "made");
}

TEST(WriteOutput, ANameOfADescriptorIsThatDescriptor) {
  const TestFolder folder;
  const auto file = folder.path() / "file";
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  ASSERT_EQ(::write(fd.get(), "first ", 6), 6);
  write_output(fmt::format("/dev/fd/{}", fd.get()), "second ");
  write_output(fmt::format("/proc/self/fd/{}", fd.get()), "third");
  EXPECT_EQ(contents(file), "first second third");
}

TEST(WriteOutput, PiecesAppearTogetherOrNotAtAll) {
  const TestFolder folder;
  const auto path = folder.path() / "trace.json";
  write_output(path, [](const WritePiece& write) {
    write("one ");
    write("two");
  });
  EXPECT_EQ(HostRoot(folder.path()).read("/trace.json"), "one two");
  const auto fails = [](const WritePiece& write) {
    write("half");
    throw Error(Code::kInternal, "the producer failed");
  };
  EXPECT_THROW(write_output(path, fails), Error);
  EXPECT_EQ(HostRoot(folder.path()).read("/trace.json"), "one two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(DurableFile, WhatAKilledWriterLeftIsRemovedAndWhatALivingOneHoldsIsNot) {
  const TestFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    DurableFile file(folder.path() / "killed");
    file.write("half");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  DurableFile living(folder.path() / "living");
  living.write("whole");
  EXPECT_EQ(DurableFile::remove_abandoned(folder.path()), 1);
  living.commit();
  EXPECT_EQ(DurableFile::remove_abandoned(folder.path()), 0);
  EXPECT_EQ(DurableFile::remove_abandoned(folder.path() / "nowhere"), 0);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, std::set<std::string>{"living"});
}

// Once its bytes are flushed and until it is in place it is no less alive than before.
TEST(DurableFile, WhatIsBeingPutInPlaceIsNotTakenForAbandoned) {
  for (const auto if_exists : {DurableFile::IfExists::kReplace, DurableFile::IfExists::kRefuse}) {
    for (const int without : {0, EINVAL}) {  // EINVAL: as NFS does
      const TestFolder folder;
      int renames = 0;
      before_rename = [&] {
        ++renames;
        EXPECT_EQ(DurableFile::remove_abandoned(folder.path()), 0);
      };
      no_rename_to_new = without;
      DurableFile file(folder.path() / "a");
      file.write("whole");
      EXPECT_NO_THROW(file.commit(if_exists));
      before_rename = nullptr;
      no_rename_to_new = 0;
      EXPECT_GE(renames, 1);
      EXPECT_EQ(contents(folder.path() / "a"), "whole");
      EXPECT_EQ(files_in(folder.path()), 1u);
    }
  }
}

TEST(DurableFile, AfterForkItStaysTheParents) {
  const TestFolder folder;
  const auto path = folder.path() / "a";
  DurableFile file(path);
  file.write("the parent's");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto is_refused = [](const auto& what) {
      try {
        what();
      } catch (const Error& error) {
        return error.code() == Code::kInvalid &&
               std::string_view(error.what()).find("a child") != std::string_view::npos;
      }
      return false;
    };
    const bool refused =
        is_refused([&] { file.write("the child's"); }) && is_refused([&] { file.commit(); });
    file.~DurableFile();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  file.write(", all of it");
  file.commit();
  EXPECT_EQ(contents(path), "the parent's, all of it");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

}  // namespace
}  // namespace bedplate::os
