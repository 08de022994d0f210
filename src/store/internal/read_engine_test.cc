#include "store/internal/read_engine.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "os/durable_file.h"
#include "os/test_folder.h"
#include "os/unique_fd.h"
#include "store/internal/direct_reads.h"

namespace bedplate::store {
namespace {

constexpr std::size_t kSize = 2'000'003;

std::string numbers() {
  std::string bytes(kSize, '\0');
  std::mt19937 random(3);
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

class Engines : public ::testing::TestWithParam<const ReadEngine*> {
 protected:
  void SetUp() override {
    if (!engine_.works()) GTEST_SKIP() << engine_.name << " does not work on this kernel";
    os::write_durably(path_, bytes_);
    open(0);
  }
  void open(int flags) { fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | flags)); }
  void drop_cache() const { ASSERT_EQ(::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED), 0); }
  static Deadline soon() { return Deadline::after(20 * kSecond); }

  // Random ranges, and how they came.
  struct Batch {
    std::vector<std::string> into;
    std::vector<RangeRead> reads;
  };
  Batch batch(int count, unsigned seed) const {
    Batch out;
    std::mt19937 random(seed);
    for (int i = 0; i < count; ++i) out.into.emplace_back(random() % 20'000, '?');
    for (std::string& one : out.into) {
      out.reads.push_back({fd_.get(), static_cast<std::int64_t>(random() % (kSize - one.size())),
                           std::as_writable_bytes(std::span(one))});
    }
    return out;
  }
  void expect_whole(const Batch& batch) const {
    for (std::size_t i = 0; i < batch.reads.size(); ++i) {
      const RangeRead& read = batch.reads[i];
      ASSERT_EQ(read.error, 0) << i;
      ASSERT_EQ(read.got, read.into.size()) << i;
      ASSERT_TRUE(bytes_.compare(static_cast<std::size_t>(read.offset), read.got, batch.into[i]) ==
                  0)
          << i;
    }
  }

  const ReadEngine& engine_ = *GetParam();
  const std::string bytes_ = numbers();
  os::TestFolder folder_;
  const std::string path_ = (folder_.path() / "file").string();
  os::UniqueFd fd_;
};

TEST_P(Engines, ReadWhatIsCachedAndWhatIsNot) {
  for (const int depth : {1, 7, 1000}) {
    drop_cache();
    for (int round = 0; round < 2; ++round) {
      Batch many = batch(400, static_cast<unsigned>(depth));
      engine_.read(many.reads, depth, soon());
      expect_whole(many);
    }
  }
  engine_.read({}, 8, soon());
}

TEST_P(Engines, TheEndOfTheFileIsSaidAndWhatCameBefore) {
  std::string into(100, '?');
  std::vector<RangeRead> reads = {
      {fd_.get(), kSize - 40, std::as_writable_bytes(std::span(into))},
      {fd_.get(), kSize + 40, std::as_writable_bytes(std::span(into)).first(1)}};
  engine_.read(reads, 4, soon());
  EXPECT_EQ(reads[0].error, kEndOfFile);
  EXPECT_EQ(reads[0].got, 40u);
  EXPECT_EQ(into.substr(0, 40), bytes_.substr(kSize - 40));
  EXPECT_EQ(reads[1].error, kEndOfFile);
}

TEST_P(Engines, AnErrorIsOfItsReadAlone) {
  std::string a(10, '?');
  std::string b(10, '?');
  std::vector<RangeRead> reads = {{-1, 0, std::as_writable_bytes(std::span(a))},
                                  {fd_.get(), 5, std::as_writable_bytes(std::span(b))}};
  engine_.read(reads, 4, soon());
  EXPECT_EQ(reads[0].error, EBADF);
  EXPECT_EQ(reads[1].error, 0);
  EXPECT_EQ(b, bytes_.substr(5, 10));
}

TEST_P(Engines, PastTheDeadlineNothingBegins) {
  VirtualClock clock;
  const Deadline passed = Deadline::after(0, clock);
  drop_cache();
  Batch many = batch(50, 1);
  engine_.read(many.reads, 4, passed);
  int late = 0;
  for (const RangeRead& read : many.reads) late += read.error == ETIMEDOUT;
  EXPECT_GT(late, 0);  // the threads may have found some of them in the cache
}

TEST_P(Engines, ThreadsAndChildrenReadAtOnce) {
  const auto work = [this](unsigned seed) {
    Batch many = batch(200, seed);
    engine_.read(many.reads, 16, soon());
    expect_whole(many);
  };
  work(1);
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 3; ++t) threads.emplace_back([&, t] { work(t); });
  }
  const pid_t child = ::fork();
  if (child == 0) {
    work(9);
    ::_exit(HasFailure() ? 1 : 0);
  }
  work(10);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(Engines, PastThePageCacheAnyRangeIsRead) {
  open(O_DIRECT);
  if (!fd_) GTEST_SKIP() << "this folder's file system has no O_DIRECT";
  for (unsigned seed = 0; seed < 3; ++seed) {
    Batch many = batch(300, seed);
    // The last bytes, and ranges that need no memory of ours.
    many.reads.front().offset = static_cast<std::int64_t>(kSize - many.into.front().size());
    read_directly(engine_, many.reads, 16, soon());
    expect_whole(many);
  }
  void* memory = nullptr;
  ASSERT_EQ(::posix_memalign(&memory, kDirectAlignment, 2 * kDirectAlignment), 0);
  RangeRead aligned{fd_.get(), 4096, {static_cast<std::byte*>(memory), 2 * kDirectAlignment}};
  RangeRead beyond = aligned;
  beyond.offset = kSize / 4096 * 4096;
  read_directly(engine_, {&aligned, 1}, 16, soon());
  EXPECT_EQ(aligned.error, 0);
  EXPECT_EQ(bytes_.compare(4096, 8192, static_cast<const char*>(memory), 8192), 0);
  read_directly(engine_, {&beyond, 1}, 16, soon());
  EXPECT_NE(beyond.error, 0);
  EXPECT_EQ(beyond.got, kSize % 4096);
  std::free(memory);
}

INSTANTIATE_TEST_SUITE_P(All, Engines, ::testing::ValuesIn(all_read_engines()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace bedplate::store
