// Damaged, foreign and unreachable run files: each is read or refused with a reason, none crashes
// the reader.
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "os/test_folder.h"
#include "probe/run_file.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void fill(RunWriter& writer, int rounds) {
  writer.meta(run_meta::kVersion, "0.1.0");
  writer.process({.pid = 9, .comm = "python", .command = "python train.py"});
  const auto a = writer.series("host", "cpu.user_ns", SeriesKind::kCounter, "/proc/stat");
  const auto b = writer.series("proc/9", "rss_bytes", SeriesKind::kGauge, "/proc/9/stat");
  for (int t = 1; t <= rounds; ++t) {
    writer.sample(a, t * 500, t * 7);
    writer.sample(b, t * 500, t % 13);
    writer.step({.pid = 9, .index = t, .start = t * 500, .duration = 500, .longest = 500});
    const Event events[] = {{t * 500, 100, 3, 9, 0}, {t * 500 + 100, 300, 4, 9, 1}};
    writer.events(9, events);
    writer.note({9, t, "open_path", "/data/x"});
    writer.flush();
  }
}

class DamageTest : public ::testing::Test {
 protected:
  fs::path run() const { return folder_.path() / "run"; }
  fs::path database() const { return run() / "run.db"; }
  void SetUp() override { fs::create_directory(run()); }

  void closed_run(int rounds = 300) {
    RunWriter writer(database());
    fill(writer, rounds);
    writer.close();
  }
  // As kill -9 leaves it.
  void killed_run(int rounds = 300) {
    const pid_t child = ::fork();
    if (child == 0) {
      RunWriter writer(database());
      fill(writer, rounds);
      ::raise(SIGKILL);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  }

  void expect_refused(const fs::path& path, Code code,
                      const ::testing::Matcher<std::string>& message) {
    try {
      read_run(path);
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(name(error.code()), name(code)) << error.what();
      EXPECT_THAT(error.what(), message);
    }
  }
  // Runs `work` as a user without rights; its exit code, or -1.
  template <typename Work>
  int as_nobody(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(99);
      ::_exit(work());
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  os::TestFolder folder_;
};

TEST_F(DamageTest, AbsentThingsAreNamed) {
  expect_refused(folder_.path() / "none", Code::kNotFound,
                 AllOf(HasSubstr("/none"), HasSubstr("bedplate run")));
  expect_refused(run(), Code::kNotFound,
                 AllOf(HasSubstr("has no run.db"), HasSubstr("bedplate run")));
  fs::create_directory(database());
  expect_refused(run(), Code::kCorrupt, HasSubstr("run.db is a folder"));
  expect_refused("/dev/null", Code::kCorrupt, HasSubstr("not a regular file"));
}

TEST_F(DamageTest, ABlockThatHoldsAnotherNumberOfItems) {
  closed_run();
  for (const char* const sql : {"UPDATE block SET items = items + 1 WHERE id = (SELECT MIN(id) "
                                "FROM block)",
                                "UPDATE block SET items = 0"}) {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open(database().c_str(), &file), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(file, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(file);
    expect_refused(run(), Code::kCorrupt, HasSubstr("lost items"));
  }
}

TEST_F(DamageTest, EmptyAndForeignFiles) {
  put(database(), "");
  expect_refused(run(), Code::kCorrupt, HasSubstr("is empty"));
  put(database(), "not a database at all, but long enough to look at. " + std::string(4096, 'x'));
  expect_refused(run(), Code::kCorrupt, HasSubstr("not a run of Bedplate"));
  put(database(), "x");
  expect_refused(run(), Code::kCorrupt, HasSubstr("not a run of Bedplate"));
  fs::remove(database());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(database().c_str(), &other), SQLITE_OK);
  sqlite3_exec(other, "CREATE TABLE meta(a)", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  expect_refused(run(), Code::kCorrupt, HasSubstr("not a run of Bedplate"));
}

TEST_F(DamageTest, ANewerFormatNamesItsVersion) {
  closed_run(3);
  sqlite3* edit = nullptr;
  ASSERT_EQ(sqlite3_open(database().c_str(), &edit), SQLITE_OK);
  sqlite3_exec(edit,
               "UPDATE meta SET value = '99' WHERE key = 'schema'; UPDATE meta SET value = '7.5' "
               "WHERE key = 'version'",
               nullptr, nullptr, nullptr);
  sqlite3_close(edit);
  expect_refused(run(), Code::kUnsupported,
                 AllOf(HasSubstr("newer Bedplate (7.5)"), HasSubstr("99"), HasSubstr("update")));
}

TEST_F(DamageTest, ARunWithoutItsLogIsShorterNotUnreadable) {
  killed_run();
  ASSERT_EQ(read_run(run()).steps.size(), 300u);
  fs::remove(database().string() + "-wal");
  fs::remove(database().string() + "-shm");
  EXPECT_LE(read_run(run()).steps.size(), 300u);
}

TEST_F(DamageTest, TruncationAtAnyPlaceIsReadOrRefused) {
  closed_run();
  const std::string whole = bytes_of(database());
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); size += 509) {
    put(database(), std::string_view(whole).substr(0, size));
    try {
      read_run(run());
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("run.db"));
      EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("while:")));
      EXPECT_EQ(error.code(), Code::kCorrupt) << error.what();
    }
  }
  EXPECT_GT(refused, 10);
}

TEST_F(DamageTest, ATruncatedLogLosesItsEnd) {
  killed_run();
  const std::string log = bytes_of(database().string() + "-wal");
  ASSERT_GT(log.size(), 10'000u);
  std::size_t last = 0;
  for (std::size_t size = 0; size <= log.size(); size += 4099) {
    fs::remove(database().string() + "-shm");
    put(database().string() + "-wal", std::string_view(log).substr(0, size));
    const RunData data = read_run(run());
    EXPECT_GE(data.steps.size(), last);
    last = data.steps.size();
  }
  EXPECT_GT(last, 100u);
}

TEST_F(DamageTest, FlippedBytesAreReadOrRefusedNeverACrash) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  closed_run(400);
  const std::string whole = bytes_of(database());
  int refused = 0, read = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = whole;
    const int flips = round % 3 == 0 ? 1 : 1 << (random() % 8);
    for (int i = 0; i < flips; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (round % 5 == 0) {  // a page of another place, as a lost write leaves it
      const std::size_t pages = damaged.size() / 4096;
      damaged.replace(random() % pages * 4096, 4096, whole.substr(random() % pages * 4096, 4096));
    }
    put(database(), damaged);
    try {
      const RunData data = read_run(run());
      EXPECT_LE(data.steps.size(), 1'000'000u);
      ++read;
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("run.db"));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);
}

TEST_F(DamageTest, FlippedBytesOfTheLogAreReadOrRefused) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  killed_run(200);
  const std::string log = bytes_of(database().string() + "-wal");
  const std::string main = bytes_of(database());
  for (int round = 0; round < 100; ++round) {
    std::string damaged = log;
    for (int i = 0; i < 1 << (random() % 6); ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    fs::remove(database().string() + "-shm");
    put(database(), main);
    put(database().string() + "-wal", damaged);
    try {
      read_run(run());
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("run.db"));
    }
  }
}

TEST_F(DamageTest, AReadOnlyFolderIsReadClosedOrKilled) {
  if (!os::others_may_enter_root())
    GTEST_SKIP() << "other users may not enter this machine's root folder";
  ::chmod(folder_.path().c_str(), 0755);
  killed_run();
  fs::remove(database().string() + "-shm");
  ::chmod(run().c_str(), 0555);
  EXPECT_EQ(as_nobody([&] {
              try {
                return read_run(run()).steps.size() == 300 ? 0 : 1;
              } catch (const Error& error) {
                std::fprintf(stderr, "%s\n", error.what());
                return 2;
              }
            }),
            0);
  EXPECT_FALSE(fs::exists(database().string() + "-shm"));
  ::chmod(run().c_str(), 0755);
  fs::remove(database());
  fs::remove(database().string() + "-wal");
  closed_run();
  ::chmod(run().c_str(), 0555);
  EXPECT_EQ(as_nobody([&] { return read_run(run()).steps.size() == 300 ? 0 : 1; }), 0);
  ::chmod(run().c_str(), 0755);
}

TEST_F(DamageTest, AFileThatMayNotBeReadSaysSo) {
  if (!os::others_may_enter_root())
    GTEST_SKIP() << "other users may not enter this machine's root folder";
  ::chmod(folder_.path().c_str(), 0755);
  closed_run(3);
  ::chmod(database().c_str(), 0000);
  EXPECT_EQ(as_nobody([&] {
              try {
                read_run(run());
                return 1;
              } catch (const Error& error) {
                return error.code() == Code::kPermission ? 0 : 2;
              }
            }),
            0);
}

}  // namespace
}  // namespace bedplate::probe
