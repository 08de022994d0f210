#include "store/driver.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "os/test_folder.h"

namespace bedplate::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(ParseUrl, TakesApartWhatUsersWrite) {
  const auto parts = [](std::string_view text) {
    const Url url = parse_url(text);
    return fmt::format("{}|{}|{}", url.scheme, url.authority, url.path);
  };
  EXPECT_EQ(parts("/data/a.tar"), "file||/data/a.tar");
  EXPECT_EQ(parts("a b://c"), "file||a b://c");
  EXPECT_EQ(parts("data"), "file||data");
  EXPECT_EQ(parts("file:///data/a.tar"), "file||/data/a.tar");
  EXPECT_EQ(parts("FILE://localhost/data"), "file||/data");
  EXPECT_EQ(parts("block:///dev/nvme0n1"), "block||/dev/nvme0n1");
  EXPECT_EQ(parts("memory://name/a/b"), "memory|name|a/b");
  EXPECT_EQ(parts("memory://name"), "memory|name|");
}

TEST(ParseUrl, RefusesWithTheReason) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      parse_url(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("memry://x/y"), HasSubstr("did you mean memory://?"));
  EXPECT_THAT(refusal("gopher://x/y"), HasSubstr("no store is known for gopher://"));
  EXPECT_THAT(refusal("file://host/data"), HasSubstr("names another machine; write file:///path"));
  EXPECT_THAT(refusal("memory://"), HasSubstr("names no"));
  const std::string secret = refusal("memory://user:password@host/x");
  EXPECT_THAT(secret, HasSubstr("user name or password"));
  EXPECT_THAT(secret, ::testing::Not(HasSubstr("user:password")));
}

TEST(Locate, AFileIsAKeyInItsFolderAndAFolderIsAStore) {
  const os::TestFolder folder;
  const std::string path = folder.path().string();
  EXPECT_EQ(locate(path).key, "");
  EXPECT_EQ(locate(path + "/").key, "");
  EXPECT_EQ(locate(path + "/x.tar").key, "x.tar");
  EXPECT_EQ(locate(path + "/x.tar").store->url(), path);
  EXPECT_EQ(locate(path + "/no/such/folder/").key, "");
  EXPECT_EQ(locate(path + "/a/../x").key, "x");
}

TEST(Locate, ALinkToAFolderThatItLiesInEndsTheListing) {
  const os::TestFolder folder;
  std::filesystem::create_directory(folder.path() / "a");
  std::filesystem::create_directory_symlink(folder.path(), folder.path() / "a" / "up");
  const Place place = locate(folder.path().string());
  try {
    place.store->list(
        "", [](const ObjectInfo&) {}, Deadline::after(kSecond));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("a/up/"));
  }
}

// The message of the error that listing ends with, "" when there is none.
std::string refusal_of_list(const Place& place, std::string_view prefix, Code code) {
  try {
    place.store->list(
        prefix, [](const ObjectInfo&) {}, Deadline::after(10 * kSecond));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

std::vector<std::string> keys_of(const Place& place, std::string_view prefix) {
  std::vector<std::string> keys;
  place.store->list(
      prefix, [&](const ObjectInfo& info) { keys.push_back(info.key); },
      Deadline::after(10 * kSecond));
  return keys;
}

// A set that is short by a shard would be read as if it were whole.
TEST(Locate, ALinkThatLeadsNowhereIsNamed) {
  const os::TestFolder folder;
  const Place place = locate(folder.path().string());
  for (const char* key : {"a/0.tar", "a/2.tar", "b/0.tar"}) put(*place.store, key, "x");
  for (const char* target : {"../gone/1.tar", "/nowhere/at/all", "1.tar"}) {
    fs::create_symlink(target, folder.path() / "a/1.tar");
    for (const char* prefix : {"", "a", "a/", "a/1", "a/1.tar"})
      EXPECT_THAT(refusal_of_list(place, prefix,
                                  target == std::string("1.tar") ? Code::kIo : Code::kNotFound),
                  ::testing::AllOf(HasSubstr("a/1.tar, a link to "), HasSubstr(target)))
          << prefix;
    // Where it does not belong to what is listed it is nobody's business.
    EXPECT_THAT(keys_of(place, "a/2"), ElementsAre("a/2.tar"));
    EXPECT_THAT(keys_of(place, "b"), ElementsAre("b/0.tar"));
    fs::remove(folder.path() / "a/1.tar");
  }
  fs::create_symlink("2.tar", folder.path() / "a/1.tar");
  fs::create_directory_symlink("../a", folder.path() / "b/linked");
  EXPECT_THAT(keys_of(place, ""),
              ElementsAre("a/0.tar", "a/1.tar", "a/2.tar", "b/0.tar", "b/linked/0.tar",
                          "b/linked/1.tar", "b/linked/2.tar"));
}

TEST(Locate, WhatMayNotBeEnteredOrSeenIsNamed) {
  if (::geteuid() == 0 && !os::others_may_enter_root())
    GTEST_SKIP() << "a user other than root sees nothing of this machine";
  const os::TestFolder folder;
  const os::TestFolder closed;
  const fs::path inner = closed.path() / "inner";
  fs::create_directory(inner);
  for (const fs::path& one : {inner / "1.tar", folder.path() / "0.tar"})
    put(*locate(one.string()).store, one.filename().string(), "x");
  fs::permissions(folder.path(), fs::perms{0755});
  struct Case {
    const char* name;
    fs::path target;
  };
  const std::vector<Case> cases = {{"1.tar", inner / "1.tar"}, {"linked", inner}};
  for (const Case& one : cases) {
    fs::create_symlink(one.target, folder.path() / one.name);
    const pid_t child = ::fork();
    if (child == 0) {
      constexpr int kNobody = 65534;
      if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(2);
      if (::geteuid() != kNobody) fs::permissions(closed.path(), fs::perms::none);
      const Place place = locate(folder.path().string());
      const std::string why = refusal_of_list(place, "", Code::kPermission);
      ::_exit(why.find(one.name) != std::string::npos && keys_of(place, "0").size() == 1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    fs::permissions(closed.path(), fs::perms::owner_all);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << one.name;
    fs::remove(folder.path() / one.name);
  }
}

// What comes and goes while a folder is listed is no error: it was there, or it was not.
TEST(Locate, FilesMayVanishWhileTheyAreListed) {
  const os::TestFolder folder;
  const Place place = locate(folder.path().string());
  put(*place.store, "stays", "x");
  std::atomic<bool> stop{false};
  std::jthread other([&] {
    for (int i = 0; !stop; ++i) {
      const auto name = folder.path() / fmt::format("d{}", i % 7);
      fs::create_directory(name);
      std::ofstream(name / "file") << "x";
      std::ofstream(folder.path() / fmt::format("f{}", i % 7)) << "x";
      fs::remove_all(name);
      fs::remove(folder.path() / fmt::format("f{}", i % 7));
    }
  });
  for (int i = 0; i < 300; ++i) EXPECT_THAT(keys_of(place, ""), ::testing::Contains("stays"));
  stop = true;
}

TEST(Locate, AFileOfTheKernelIsNotTakenForAnEmptyOne) {
  for (const char* path : {"/proc/self/status", "/proc/cpuinfo"}) {
    const Place place = locate(path);
    try {
      info(*place.store, place.key);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
}

TEST(Locate, AFolderIsClaimedByOneAtATime) {
  const os::TestFolder folder;
  const Place place = locate((folder.path() / "new/").string());
  const Place same = locate(folder.path().string());
  auto claim = place.store->claim("", Deadline::after(0));
  ASSERT_NE(claim, nullptr);
  EXPECT_THAT(keys_of(same, ""), ElementsAre());
  try {
    same.store->claim("new/", Deadline::after(10 * kMillisecond));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kExists);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("process {}", ::getpid())));
  }
  claim.reset();
  EXPECT_NE(same.store->claim("new/", Deadline::after(0)), nullptr);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(locate("memory://claimed/x").store->claim("", Deadline::after(0)), nullptr);
}

}  // namespace
}  // namespace bedplate::store
