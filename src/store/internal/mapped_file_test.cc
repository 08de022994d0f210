// When a file is read through a mapping: large, all in memory, and the kernel says so.
#include "store/internal/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/units.h"
#include "os/test_folder.h"
#include "os/unique_fd.h"
#include "store/driver.h"

namespace bedplate::store {
namespace {

class MappedFileOf : public ::testing::Test {
 protected:
  os::UniqueFd file(std::int64_t size) {
    os::UniqueFd fd(::open(path().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600));
    const std::string bytes(static_cast<std::size_t>(size), 'x');
    EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), size);
    return fd;
  }
  std::string path() { return (folder_.path() / "file").string(); }

  os::TestFolder folder_;
};

TEST_F(MappedFileOf, WhatWasJustWrittenIsCached) {
  const os::UniqueFd fd = file(8 * kMiB);
  MappedFile map(fd.get(), 8 * kMiB);
  ASSERT_TRUE(map.is_cached());
  EXPECT_EQ(std::memcmp(map.bytes() + 5 * kMiB, "xxxx", 4), 0);
}

TEST_F(MappedFileOf, SmallFilesAreNotWorthIt) {
  const os::UniqueFd fd = file(64 * kKiB);
  MappedFile map(fd.get(), 64 * kKiB);
  EXPECT_FALSE(map.is_cached());
}

TEST_F(MappedFileOf, WhatLeftTheCacheIsNot) {
  const os::UniqueFd fd = file(8 * kMiB);
  ASSERT_EQ(::fsync(fd.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 4 * kMiB, POSIX_FADV_DONTNEED), 0);
  // A file system that lives in memory keeps its pages.
  MappedFile map(fd.get(), 8 * kMiB);
  if (map.is_cached()) GTEST_SKIP() << "this file system does not drop pages";
  EXPECT_FALSE(map.is_cached());
}

TEST_F(MappedFileOf, AStoreGivesTheSameBytesEitherWayAndRefusesWhatWasCutShort) {
  const os::UniqueFd fd = file(8 * kMiB);
  ASSERT_EQ(::pwrite(fd.get(), "here", 4, 6 * kMiB), 4);
  const Place place = locate(path());
  const ObjectInfo known = info(*place.store, place.key);
  std::string into(4, '\0');
  Read read{.key = place.key,
            .offset = 6 * kMiB,
            .into = std::as_writable_bytes(std::span(into)),
            .version = known.version};
  read_exactly(*place.store, read);
  EXPECT_EQ(into, "here");
  ASSERT_EQ(::ftruncate(fd.get(), 1 * kMiB), 0);
  place.store->read({&read, 1}, Deadline::after(kSecond));
  ASSERT_TRUE(read.error.has_value());
  EXPECT_EQ(read.error->code(), Code::kCorrupt);
}

}  // namespace
}  // namespace bedplate::store
