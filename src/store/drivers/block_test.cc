// The driver of raw devices on a real one: a loop device over a file, with each size of sector that
// disks have.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "os/test_folder.h"
#include "os/unique_fd.h"
#include "store/driver.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

enum class Access { kReadWrite, kReadOnly };

// A device over a file. The kernel takes it away with its last descriptor, so that a killed test
// leaves none behind.
class LoopDevice {
 public:
  // nullptr, and why, where this user or kernel makes none.
  static std::unique_ptr<LoopDevice> make(const std::filesystem::path& file, unsigned sector,
                                          Access access, std::string& why_not) {
    const os::UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (!control) return refuse("/dev/loop-control", why_not);
    const os::UniqueFd backing(
        ::open(file.c_str(), (access == Access::kReadOnly ? O_RDONLY : O_RDWR) | O_CLOEXEC));
    if (!backing) return refuse("the file", why_not);
    for (int attempt = 0; attempt < 20; ++attempt) {
      const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
      if (number < 0) return refuse("LOOP_CTL_GET_FREE", why_not);
      const std::string path = fmt::format("/dev/loop{}", number);
      os::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!fd) return refuse(path, why_not);
      loop_config config{};
      config.fd = static_cast<__u32>(backing.get());
      config.block_size = sector;
      config.info.lo_flags =
          LO_FLAGS_AUTOCLEAR | (access == Access::kReadOnly ? LO_FLAGS_READ_ONLY : 0);
      if (::ioctl(fd.get(), LOOP_CONFIGURE, &config) == 0)
        return std::unique_ptr<LoopDevice>(new LoopDevice(path, std::move(fd)));
      if (errno != EBUSY) return refuse("LOOP_CONFIGURE", why_not);  // somebody else was faster
    }
    return refuse("a free loop device", why_not);
  }

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }

 private:
  LoopDevice(std::string path, os::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  static std::nullptr_t refuse(std::string_view what, std::string& why_not) {
    why_not = fmt::format("needs loop devices: {}: {}", what, std::strerror(errno));
    return nullptr;
  }

  std::string path_;
  os::UniqueFd fd_;
};

std::string pattern(std::size_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(length, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// By the size of a logical sector.
class BlockDevice : public ::testing::TestWithParam<unsigned> {
 protected:
  std::filesystem::path file(std::string_view name, std::string_view bytes) const {
    const auto path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::unique_ptr<LoopDevice> attach(const std::filesystem::path& file,
                                     Access access = Access::kReadWrite) {
    return LoopDevice::make(file, GetParam(), access, why_not_);
  }
  static Place place_of(const LoopDevice& device) { return locate("block://" + device.path()); }
  static Deadline soon() { return Deadline::after(20 * kSecond); }

  template <typename Act>
  static Error error_of(Act act) {
    try {
      act();
    } catch (const Error& error) {
      return error;
    }
    return {Code::kInternal, "nothing was thrown"};
  }
  // Ranges at and around all borders, to the very last byte.
  static void expect_any_range(const Place& place, const std::string& bytes) {
    std::mt19937 random(5);
    std::vector<std::string> into;
    std::vector<Read> reads;
    std::vector<std::int64_t> offsets = {0, 1, 511, 512, 513, 4095, 4096, 4097};
    for (const std::size_t length : {1UL, 511UL, 512UL, 4096UL, 5000UL, 70'000UL})
      offsets.push_back(std::ssize(bytes) - static_cast<std::int64_t>(length));
    for (int i = 0; i < 100; ++i)
      offsets.push_back(static_cast<std::int64_t>(random() % bytes.size()));
    for (const std::int64_t offset : offsets) {
      const std::size_t left = bytes.size() - static_cast<std::size_t>(offset);
      for (const std::size_t length : {std::min<std::size_t>(left, 1 + random() % 9000), left})
        if (length < 100'000) into.emplace_back(length, '?');
      while (reads.size() < into.size()) reads.push_back({.key = place.key, .offset = offset});
    }
    for (std::size_t i = 0; i < into.size(); ++i)
      reads[i].into = std::as_writable_bytes(std::span(into[i]));
    place.store->read(reads, soon());
    for (std::size_t i = 0; i < reads.size(); ++i) {
      ASSERT_FALSE(reads[i].error) << reads[i].error->what();
      ASSERT_TRUE(
          bytes.compare(static_cast<std::size_t>(reads[i].offset), into[i].size(), into[i]) == 0)
          << into[i].size() << " bytes from " << reads[i].offset;
    }
  }

  os::TestFolder folder_;
  std::string why_not_;
};

TEST_P(BlockDevice, WhatIsWrittenIsReadFromAnyByte) {
  const auto device = attach(file("image", std::string(8 * kMiB, '\0')));
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  for (const std::size_t length : {1UL, 4097UL, 3'000'003UL}) {
    const std::string bytes = pattern(length, 1);
    const ObjectInfo made = put(*place.store, place.key, bytes);
    EXPECT_EQ(info(*place.store, place.key), made);
    EXPECT_TRUE(get(*place.store, place.key) == bytes);
  }
  expect_any_range(place, pattern(3'000'003, 1));
}

TEST_P(BlockDevice, WhatSomebodyElseWroteIsReadToTheDevicesEnd) {
  // Of small sectors no multiple of the 4 KiB in which the driver reads.
  const std::string bytes = pattern(4 * kMiB + 3 * GetParam(), 2);
  const auto device = attach(file("image", bytes));
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  const ObjectInfo whole = info(*place.store, place.key);
  ASSERT_EQ(whole.size, std::ssize(bytes));
  expect_any_range(place, bytes);
  std::string beyond(2, '?');
  Read read{.key = place.key,
            .offset = whole.size - 1,
            .into = std::as_writable_bytes(std::span(beyond))};
  place.store->read({&read, 1}, soon());
  EXPECT_EQ(read.error.value().code(), Code::kInvalid);
  EXPECT_EQ(error_of([&] { put(*place.store, place.key, "x", IfExists::kRefuse); }).code(),
            Code::kExists);
}

TEST_P(BlockDevice, AnObjectFillsTheDeviceAndNoMore) {
  const auto device = attach(file("image", std::string(2 * kMiB, '\0')));
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  const std::string fits = pattern(2 * kMiB - 4096, 3);
  put(*place.store, place.key, fits);
  EXPECT_TRUE(get(*place.store, place.key) == fits);
  const Error full = error_of([&] { put(*place.store, place.key, fits + "x"); });
  EXPECT_EQ(full.code(), Code::kNoSpace);
  EXPECT_THAT(full.what(), HasSubstr("it has room for 2.00 MiB"));
  EXPECT_EQ(place.store->find(place.key, soon()), std::nullopt);  // half an object is none
}

TEST_P(BlockDevice, AReadOnlyDeviceIsReadAndNotWritten) {
  const auto image = file("image", std::string(2 * kMiB, '\0'));
  ObjectInfo made;
  {
    const auto device = attach(image);
    if (!device) GTEST_SKIP() << why_not_;
    made = put(*place_of(*device).store, place_of(*device).key, "kept");
  }
  const auto device = attach(image, Access::kReadOnly);
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  EXPECT_EQ(info(*place.store, place.key).version, made.version);
  EXPECT_EQ(error_of([&] { put(*place.store, place.key, "lost"); }).code(), Code::kPermission);
  EXPECT_EQ(error_of([&] { place.store->remove(place.key, soon()); }).code(), Code::kPermission);
  EXPECT_EQ(get(*place.store, place.key), "kept");
}

TEST_P(BlockDevice, ADeviceSmallerThanItsObjectIsSaidToBeDamaged) {
  const auto large = file("large", std::string(8 * kMiB, '\0'));
  {
    const auto device = attach(large);
    if (!device) GTEST_SKIP() << why_not_;
    put(*place_of(*device).store, place_of(*device).key, pattern(6 * kMiB, 4));
  }
  // Its begin and its end, as a copy that left out the middle has them.
  std::string bytes(8 * kMiB, '\0');
  std::ifstream(large, std::ios::binary).read(bytes.data(), std::ssize(bytes));
  bytes.erase(2 * kMiB, 4 * kMiB);
  const auto device = attach(file("small", bytes));
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  const Error error = error_of([&] { info(*place.store, place.key); });
  EXPECT_EQ(error.code(), Code::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr(device->path()));
  std::string part(4, '?');
  Read read{.key = place.key, .into = std::as_writable_bytes(std::span(part))};
  place.store->read({&read, 1}, soon());
  EXPECT_EQ(read.error.value().code(), Code::kCorrupt);
}

TEST_P(BlockDevice, ADeviceThatShrinksUnderAReaderEndsItsReads) {
  const auto image = file("image", pattern(4 * kMiB, 6));
  const auto device = attach(image);
  if (!device) GTEST_SKIP() << why_not_;
  const Place place = place_of(*device);
  const ObjectInfo before = info(*place.store, place.key);
  std::filesystem::resize_file(image, kMiB);
  ASSERT_EQ(::ioctl(device->fd(), LOOP_SET_CAPACITY, 0), 0);
  std::string part(4, '?');
  Read read{.key = place.key,
            .offset = 2 * kMiB,
            .into = std::as_writable_bytes(std::span(part)),
            .version = before.version};
  place.store->read({&read, 1}, soon());
  EXPECT_EQ(read.error.value().code(), Code::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(Sectors, BlockDevice, ::testing::Values(512U, 4096U),
                         [](const auto& info) { return fmt::format("of_{}_bytes", info.param); });

}  // namespace
}  // namespace bedplate::store
