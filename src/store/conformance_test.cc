// What every store does, over every registered driver, and over a cache in front of one.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "os/test_folder.h"
#include "store/cache/cache.h"
#include "store/driver.h"
#include "store/fault_store.h"

namespace bedplate::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A place to test one driver in, which ends with the fixture.
struct Fixture {
  os::TestFolder folder;
  os::TestFolder behind;  // for what is no object
  Place place;            // of the key to use
  bool many_keys = true;  // else one, whose name is the driver's
};

std::unique_ptr<Fixture> memory() {
  auto fixture = std::make_unique<Fixture>();
  fixture->place = locate("memory://conformance/key");
  return fixture;
}

std::unique_ptr<Fixture> files(StoreOptions::Direct direct) {
  auto fixture = std::make_unique<Fixture>();
  fixture->place = locate((fixture->folder.path() / "key").string(), {.direct = direct});
  return fixture;
}

std::unique_ptr<Fixture> block() {
  auto fixture = std::make_unique<Fixture>();
  const auto device = fixture->folder.path() / "device";
  std::ofstream(device).close();
  std::filesystem::resize_file(device, 4 * kMiB);
  fixture->place = locate("block://" + device.string());
  fixture->place.store->remove(fixture->place.key, Deadline::after(kSecond));
  put(*fixture->place.store, fixture->place.key, "x");
  fixture->place.store->remove(fixture->place.key, Deadline::after(kSecond));
  fixture->many_keys = false;
  return fixture;
}

std::unique_ptr<Fixture> cached(std::int64_t cap_bytes) {
  auto fixture = files(StoreOptions::Direct::kNo);
  const auto cache = Cache::open({.folder = fixture->behind.path() / "cache",
                                  .cap_bytes = cap_bytes,
                                  .block_bytes = 64 * kKiB});
  fixture->place.store = cache->over(fixture->place.store);
  return fixture;
}

struct Maker {
  std::string_view driver;
  std::string_view name;
  std::function<std::unique_ptr<Fixture>()> make;
};
const Maker kMakers[] = {
    {"memory", "memory", memory},
    {"file", "file", [] { return files(StoreOptions::Direct::kNo); }},
    {"file", "file_direct", [] { return files(StoreOptions::Direct::kYes); }},
    {"block", "block", block},
    {"file", "file_cached", [] { return cached(64 * kMiB); }},
    {"file", "file_cached_tightly", [] { return cached(300 * kKiB); }},
};
// Their servers are those of drivers/http_test.cc and drivers/s3_server_test.cc.
constexpr std::string_view kElsewhere[] = {"http", "s3"};

class Conformance : public ::testing::TestWithParam<Maker> {
 protected:
  std::unique_ptr<Fixture> fixture_ = GetParam().make();
  Store& store_ = *fixture_->place.store;
  std::string key_ = fixture_->place.key;

  static Deadline soon() { return Deadline::after(20 * kSecond); }

  std::string part(std::int64_t offset, std::size_t length, std::string version = {}) {
    std::string bytes(length, '?');
    read_exactly(store_, {.key = key_,
                          .offset = offset,
                          .into = std::as_writable_bytes(std::span(bytes)),
                          .version = std::move(version)});
    return bytes;
  }
  Code code_of(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      message_ = error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return Code::kInternal;
  }
  std::vector<std::string> keys(std::string_view prefix) {
    std::vector<std::string> found;
    store_.list(
        prefix, [&](const ObjectInfo& info) { found.push_back(info.key); }, soon());
    return found;
  }
  std::string message_;
};

std::string pattern(std::size_t length, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(length, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST_P(Conformance, WhatWasWrittenIsRead) {
  for (const std::size_t length : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 3'000'000UL}) {
    const std::string bytes = pattern(length);
    const ObjectInfo made = put(store_, key_, bytes);
    EXPECT_EQ(made.size, std::ssize(bytes));
    EXPECT_EQ(info(store_, key_), made);
    EXPECT_TRUE(get(store_, key_) == bytes) << length;
  }
}

TEST_P(Conformance, AnyRangeOfMany) {
  const std::string bytes = pattern(1'000'003);
  const std::string version = put(store_, key_, bytes).version;
  std::mt19937 random(7);
  std::vector<std::string> into;
  std::vector<std::size_t> offsets;
  for (int i = 0; i < 500; ++i) {
    offsets.push_back(random() % bytes.size());
    into.emplace_back(random() % std::min<std::size_t>(bytes.size() - offsets.back() + 1, 9000),
                      '?');
  }
  std::vector<Read> reads;
  for (std::size_t i = 0; i < into.size(); ++i) {
    reads.push_back({.key = key_,
                     .offset = static_cast<std::int64_t>(offsets[i]),
                     .into = std::as_writable_bytes(std::span(into[i])),
                     .version = version});
  }
  store_.read(reads, soon());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    ASSERT_FALSE(reads[i].error) << reads[i].error->what();
    ASSERT_TRUE(into[i] == bytes.substr(offsets[i], into[i].size())) << offsets[i];
  }
}

TEST_P(Conformance, ARangeBeyondTheEndIsRefusedAndTheOthersAreRead) {
  put(store_, key_, "0123456789");
  std::string good(4, '?');
  std::string bad(4, '?');
  Read reads[] = {
      {.key = key_, .offset = 6, .into = std::as_writable_bytes(std::span(good))},
      {.key = key_, .offset = 7, .into = std::as_writable_bytes(std::span(bad))},
      {.key = key_, .offset = -1, .into = std::as_writable_bytes(std::span(bad))},
      {.key = key_, .offset = INT64_MAX, .into = std::as_writable_bytes(std::span(bad))}};
  store_.read(reads, soon());
  EXPECT_FALSE(reads[0].error);
  EXPECT_EQ(good, "6789");
  for (const Read& one : std::span(reads).subspan(1)) {
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code(), Code::kInvalid) << one.error->what();
  }
  EXPECT_THAT(reads[1].error->what(), HasSubstr("it has 10"));
  EXPECT_EQ(part(10, 0), "");
}

TEST_P(Conformance, AReadThatIsTriedAgainForgetsItsEarlierError) {
  put(store_, key_, "0123456789");
  FaultStore faulty(fixture_->place.store, {.before_read = fail_first(2, Code::kUnavailable)});
  for (Store* store : {&store_, static_cast<Store*>(&faulty)}) {
    std::string bytes(4, '?');
    Read reads[] = {{.key = key_, .offset = 3, .into = std::as_writable_bytes(std::span(bytes))},
                    {.key = key_, .offset = 10}};
    for (Read& one : reads) one.error = Error(Code::kIo, "of an earlier attempt");
    store->read(reads, soon());
    if (store == &faulty) {
      for (const Read& one : reads) EXPECT_EQ(one.error.value().code(), Code::kUnavailable);
      store->read(reads, soon());
    }
    for (const Read& one : reads) EXPECT_FALSE(one.error) << one.error->what();
    EXPECT_EQ(bytes, "3456");
  }
}

TEST_P(Conformance, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(store_.find(key_, soon()), std::nullopt);
  EXPECT_EQ(code_of([&] { info(store_, key_); }), Code::kNotFound);
  EXPECT_THAT(message_, HasSubstr(key_));
  EXPECT_EQ(code_of([&] { part(0, 1); }), Code::kNotFound);
  store_.remove(key_, soon());
  put(store_, key_, "x");
  store_.remove(key_, soon());
  EXPECT_EQ(store_.find(key_, soon()), std::nullopt);
}

TEST_P(Conformance, AReplacedObjectIsNotTheVersionThatWasAskedFor) {
  const std::string before = put(store_, key_, "before").version;
  EXPECT_EQ(part(0, 6, before), "before");
  const std::string after = put(store_, key_, "after!").version;
  EXPECT_NE(before, after);
  EXPECT_EQ(part(0, 6, after), "after!");
  EXPECT_EQ(part(0, 6), "after!");
  EXPECT_EQ(code_of([&] { part(0, 6, before); }), Code::kCorrupt);
  EXPECT_THAT(message_, HasSubstr("replaced or changed"));
}

TEST_P(Conformance, KeysCannotLeaveTheStore) {
  for (const std::string bad :
       {"", "/etc/passwd", "../x", "a/../../x", "a/./b", "a//b", "a/", ".."}) {
    EXPECT_EQ(code_of([&] { store_.find(bad, soon()); }), Code::kInvalid) << bad;
    EXPECT_EQ(code_of([&] { put(store_, bad, "x"); }), Code::kInvalid) << bad;
    EXPECT_EQ(code_of([&] { store_.remove(bad, soon()); }), Code::kInvalid) << bad;
    Read read{.key = bad};
    store_.read({&read, 1}, soon());
    ASSERT_TRUE(read.error) << bad;
    EXPECT_EQ(read.error->code(), Code::kInvalid) << bad;
  }
  EXPECT_EQ(code_of([&] { store_.find(std::string_view("a\0b", 3), soon()); }), Code::kInvalid);
}

TEST_P(Conformance, RefusesToReplaceWhenToldSo) {
  put(store_, key_, "mine", IfExists::kRefuse);
  EXPECT_EQ(code_of([&] { put(store_, key_, "yours", IfExists::kRefuse); }), Code::kExists);
  EXPECT_EQ(get(store_, key_), "mine");
}

TEST_P(Conformance, AnObjectAppearsWholeOrNotAtAll) {
  {
    const auto writer = store_.create(key_, IfExists::kReplace, kSecond);
    const std::string half = pattern(2'000'000);
    writer->write(std::as_bytes(std::span(half)));
    EXPECT_EQ(store_.find(key_, soon()), std::nullopt);
  }
  EXPECT_EQ(store_.find(key_, soon()), std::nullopt);
  EXPECT_THAT(keys(""), ElementsAre());
}

TEST_P(Conformance, FaultsReachTheReaderAndTheWriter) {
  put(store_, key_, "0123456789");
  FaultStore faulty(fixture_->place.store, {.before_read = fail_first(1, Code::kUnavailable),
                                            .after_read = flip_bit(key_, 3),
                                            .before_write = no_space_after(4)});
  std::string bytes(10, '?');
  const Read all{.key = key_, .into = std::as_writable_bytes(std::span(bytes))};
  EXPECT_EQ(code_of([&] { read_exactly(faulty, all); }), Code::kUnavailable);
  read_exactly(faulty, all);
  EXPECT_EQ(bytes, "0122456789");
  EXPECT_EQ(code_of([&] { put(faulty, key_, "12345"); }), Code::kNoSpace);
}

TEST_P(Conformance, ListsInTheOrderOfTheKeysBytes) {
  if (!fixture_->many_keys) GTEST_SKIP() << "this store holds one object";
  const std::vector<std::string> sorted = {"a", "a-b", "a/b", "a/b-c", "a/b/c", "a0", "ä", "ü/x y"};
  EXPECT_TRUE(std::ranges::is_sorted(sorted));
  for (std::size_t i = sorted.size(); i-- > 1;) {
    if (sorted[i] != "a/b" && sorted[i] != "a") put(store_, sorted[i], "x");
  }
  EXPECT_THAT(keys(""), ElementsAre("a-b", "a/b-c", "a/b/c", "a0", "ä", "ü/x y"));
  EXPECT_THAT(keys("a/b"), ElementsAre("a/b-c", "a/b/c"));
  EXPECT_THAT(keys("a/b/"), ElementsAre("a/b/c"));
  EXPECT_THAT(keys("none"), ElementsAre());
  std::int64_t bytes = 0;
  store_.list(
      "a", [&](const ObjectInfo& one) { bytes += one.size; }, soon());
  EXPECT_EQ(bytes, 4);
}

TEST_P(Conformance, ManyThreadsReadWhileOneReplaces) {
  if (!fixture_->many_keys) GTEST_SKIP() << "this store's one object is absent while it is written";
  put(store_, key_, std::string(20'000, 'a'));
  std::atomic<bool> stop{false};
  std::atomic<int> mixed{0};
  std::vector<std::jthread> readers;
  for (int t = 0; t < 3; ++t) {
    readers.emplace_back([&] {
      while (!stop) {
        const std::string bytes = part(0, 20'000);
        mixed += bytes.find_first_not_of(bytes[0]) != std::string::npos;
      }
    });
  }
  for (int i = 0; i < 50; ++i)
    put(store_, key_, std::string(20'000, static_cast<char>('a' + i % 26)));
  stop = true;
  readers.clear();
  EXPECT_EQ(mixed, 0);
}

TEST_P(Conformance, AChildReadsOnAfterFork) {
  const std::string bytes = pattern(100'000);
  put(store_, key_, bytes);
  EXPECT_TRUE(get(store_, key_) ==
              bytes);  // what a thread keeps of a store is there before the fork
  const pid_t child = ::fork();
  if (child == 0) ::_exit(get(store_, key_) == bytes ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(get(store_, key_) == bytes);
}

INSTANTIATE_TEST_SUITE_P(Drivers, Conformance, ::testing::ValuesIn(kMakers),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Drivers, AreAllTestedHereOrAgainstTheirServers) {
  for (const Driver* driver : all_drivers()) {
    const bool here = std::ranges::find(kMakers, driver->name, &Maker::driver) != std::end(kMakers);
    EXPECT_TRUE(here || std::ranges::find(kElsewhere, driver->name) != std::end(kElsewhere))
        << driver->name << " has no place to be tested in";
  }
}

}  // namespace
}  // namespace bedplate::store
