#include "store/driver.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "os/test_folder.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace bedplate::store
