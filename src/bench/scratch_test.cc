#include "bench/scratch.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "os/test_folder.h"

namespace bedplate::bench {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t entries(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(ScratchFolder, IsRemovedWithAllInIt) {
  const os::TestFolder folder;
  {
    const ScratchFolder scratch(folder.path());
    fs::create_directories(scratch.path() / "a/b");
    std::ofstream(scratch.path() / "a/b/c") << "x";
    EXPECT_EQ(entries(folder.path()), 1);
  }
  EXPECT_EQ(entries(folder.path()), 0);
}

TEST(ScratchFolder, OfAKilledProcessIsRemovedByTheNextAndALivingOnesIsNot) {
  const os::TestFolder folder;
  const ScratchFolder living(folder.path());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const ScratchFolder scratch(folder.path());
    std::ofstream(scratch.path() / "a") << "x";
    [[maybe_unused]] const auto n = ::write(ready[1], "!", 1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(entries(folder.path()), 2);
  { EXPECT_EQ(ScratchFolder(folder.path()).leftovers(), 0); }
  EXPECT_EQ(entries(folder.path()), 2);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  { EXPECT_EQ(ScratchFolder(folder.path()).leftovers(), 1); }
  EXPECT_EQ(entries(folder.path()), 1);
  EXPECT_TRUE(fs::exists(living.path()));
}

TEST(ScratchFolder, LeavesAloneWhatIsNotOurs) {
  const os::TestFolder folder;
  fs::create_directory(folder.path() / "data");
  fs::create_directory(folder.path() / ".bedplate-bench-just-made");  // its lock comes next
  std::ofstream(folder.path() / ".bedplate-bench-file") << "x";
  fs::create_directory_symlink(folder.path() / "data", folder.path() / ".bedplate-bench-link");
  std::ofstream(folder.path() / "data/owner") << "x";
  { EXPECT_EQ(ScratchFolder(folder.path()).leftovers(), 0); }
  EXPECT_EQ(entries(folder.path()), 4);
  EXPECT_TRUE(fs::exists(folder.path() / "data/owner"));
}

TEST(NamelessFile, HasNoNameAndRoomForBytes) {
  const os::TestFolder folder;
  const os::UniqueFd file = nameless_file(folder.path());
  EXPECT_EQ(entries(folder.path()), 0);
  EXPECT_EQ(::pwrite(file.get(), "abc", 3, 0), 3);
  struct stat status {};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
}

TEST(CheckRoom, RefusesWhatWouldFillTheDisk) {
  const os::TestFolder folder;
  check_room(folder.path(), {.bytes = 1, .files = 1, .reserve = 1});
  const auto code_of = [&](const fs::path& path, const Room& room) {
    try {
      check_room(path, room);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  };
  constexpr std::int64_t kMuch = INT64_MAX / 2;
  EXPECT_EQ(code_of(folder.path(), {.bytes = kMuch}), Code::kNoSpace);
  EXPECT_EQ(code_of(folder.path(), {.reserve = kMuch}), Code::kNoSpace);
  EXPECT_EQ(code_of(folder.path() / "missing", {}), Code::kNotFound);
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_EQ(code_of(folder.path() / "file", {}), Code::kInvalid);
}

}  // namespace
}  // namespace bedplate::bench
