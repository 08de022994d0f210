#include "bench/meta.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/internal/crew.h"
#include "bench/scratch.h"
#include "os/unique_fd.h"

namespace bedplate::bench {
namespace {

constexpr int kMostThreads = 1024;
constexpr Nanos kLongest = 600 * kSecond;        // of a phase
constexpr Nanos kListings = 200 * kMillisecond;  // of a thread: as many listings as begin in it

int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void check(const MetaOptions& options) {
  constexpr std::int64_t kMostFiles = 100'000'000;
  if (options.files < options.threads || options.files > kMostFiles) {
    throw Error(Code::kInvalid,
                "{} files for {} threads: give at least one each, at most {} in all", options.files,
                options.threads, kMostFiles);
  }
  if (options.bytes < 0 || options.bytes > kGiB)
    throw Error(Code::kInvalid, "files of {} bytes: give 0 to 1 GiB", options.bytes);
  if (options.threads < 1 || options.threads > kMostThreads)
    throw Error(Code::kInvalid, "{} threads: give 1 to {}", options.threads, kMostThreads);
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// One thread's files.
class Hand {
 public:
  Hand(const MetaOptions& options, const std::filesystem::path& folder, int thread,
       std::int64_t files)
      : where_(to_utf8(options.folder.native())),
        thread_(thread),
        files_(files),
        folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        content_(static_cast<std::size_t>(options.bytes), static_cast<char>('a' + thread % 26)),
        buffer_(content_.size() + 1, '\0') {
    if (!folder_) throw failed("open the test folder");
  }

  void begin_phase() {
    next_ = 0;
    begun_ = 0;
  }
  // The number of the next file; -1: that was the last.
  std::int64_t next() { return next_ < files_ ? next_++ : -1; }

  void create(std::int64_t file) {
    const os::UniqueFd fd(::openat(folder_.get(), name('f', file).c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd) throw failed("create a file");
    mark(content_, file);
    for (std::size_t done = 0; done < content_.size();) {
      const ssize_t n = ::write(fd.get(), content_.data() + done, content_.size() - done);
      if (n < 0 && errno != EINTR) throw failed("write a file");
      if (n > 0) done += static_cast<std::size_t>(n);
    }
  }
  void look(std::int64_t file) {
    struct stat status {};
    if (::fstatat(folder_.get(), name('f', file).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      throw failed("stat a file");
    if (status.st_size != std::ssize(content_)) throw wrong("a file's size");
  }
  void open_and_read(std::int64_t file) {
    const os::UniqueFd fd(::openat(folder_.get(), name('f', file).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) throw failed("open a file");
    std::size_t got = 0;
    while (true) {
      const ssize_t n = ::read(fd.get(), buffer_.data() + got, buffer_.size() - got);
      if (n < 0 && errno != EINTR) throw failed("read a file");
      if (n == 0) break;
      if (n > 0) got += static_cast<std::size_t>(n);
      if (got == buffer_.size()) break;  // longer than it may be
    }
    mark(content_, file);
    if (std::string_view(buffer_).substr(0, got) != content_) throw wrong("a file's content");
  }
  void rename(std::int64_t file) {
    if (::renameat(folder_.get(), name('f', file).c_str(), folder_.get(),
                   name('g', file).c_str()) != 0)
      throw failed("rename a file");
  }
  void remove(std::int64_t file) {
    if (::unlinkat(folder_.get(), name('g', file).c_str(), 0) != 0) throw failed("remove a file");
  }

  std::int64_t files() const { return files_; }
  // Entries of one listing; 0: time to end.
  std::int64_t list(std::int64_t expected) {
    const Nanos now = real_clock().now();
    if (begun_ == 0) begun_ = now;
    if (now - begun_ > kListings) return 0;
    const int fd = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, CloseFolder> folder(fd < 0 ? nullptr : ::fdopendir(fd));
    if (!folder) throw failed("open the test folder");
    std::int64_t entries = 0;
    errno = 0;
    while (const dirent* entry = ::readdir(folder.get())) entries += entry->d_name[0] == 'f';
    if (errno != 0) throw failed("list the test folder");
    if (entries != expected) throw wrong("the number of files in a folder");
    return entries;
  }

 private:
  std::string name(char kind, std::int64_t file) const {
    return fmt::format("{}{:03}-{:07}", kind, thread_, file);
  }
  // So that no two files hold the same.
  static void mark(std::string& content, std::int64_t file) {
    std::memcpy(content.data(), &file, std::min(content.size(), sizeof file));
  }
  Error failed(std::string_view what) const {
    return errno_error(errno, fmt::format("cannot {} in {}", what, where_));
  }
  Error wrong(std::string_view what) const {
    return {Code::kCorrupt, "{} in {} is not what was written", what, where_};
  }

  std::string where_;
  int thread_;
  std::int64_t files_;
  os::UniqueFd folder_;
  std::string content_;
  std::string buffer_;
  std::int64_t next_ = 0;
  Nanos begun_ = 0;  // the first listing
};

struct PhaseKind {
  std::string_view name;
  void (Hand::*act)(std::int64_t file);  // nullptr: list
};
constexpr PhaseKind kPhases[] = {
    {"create", &Hand::create}, {"stat", &Hand::look},     {kOpenAndRead, &Hand::open_and_read},
    {"list", nullptr},         {"rename", &Hand::rename}, {"remove", &Hand::remove},
};

std::vector<Hand> hands_for(const MetaOptions& options, const std::filesystem::path& scratch) {
  std::vector<Hand> hands;
  for (int t = 0; t < options.threads; ++t) {
    const auto folder =
        scratch / (options.folders == Folders::kShared ? "all" : fmt::format("{}", t));
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
      throw errno_error(errno, "cannot make a folder in " + to_utf8(options.folder.native()));
    const std::int64_t files =
        options.files / options.threads + (t < options.files % options.threads ? 1 : 0);
    hands.emplace_back(options, folder, t, files);
  }
  return hands;
}

std::vector<std::string> notes_of(const MetaOptions& options, int leftovers) {
  std::vector<std::string> notes;
  if (const std::string name = memory_file_system(options.folder); !name.empty())
    notes.push_back(fmt::format("this is a {}: the figures are those of memory", name));
  notes.emplace_back(
      "files are looked at by the machine that made them: another one's first look is slower");
  if (leftovers > 0) {
    notes.push_back(fmt::format("removed what {} killed measurement{} had left", leftovers,
                                leftovers == 1 ? "" : "s"));
  }
  return notes;
}

}  // namespace

const MetaPhase& MetaResult::of(std::string_view name) const {
  const auto at = std::ranges::find(phases, name, &MetaPhase::name);
  BEDPLATE_CHECK(at != phases.end());
  return *at;
}

MetaResult measure_meta(const MetaOptions& given) {
  constexpr std::int64_t kBlock = 4096;  // what a file takes at least, on most file systems
  constexpr int kDefaultThreads = 16;
  MetaOptions options = given;
  if (options.threads == 0) options.threads = std::min(processors(), kDefaultThreads);
  check(options);
  const std::int64_t blocks = (options.bytes + kBlock - 1) / kBlock + 1;
  check_room(options.folder, {.bytes = options.files * blocks * kBlock,
                              .files = options.files + options.threads + 2,
                              .reserve = options.reserve});
  const ScratchFolder scratch(options.folder);
  std::vector<Hand> hands = hands_for(options, scratch.path());
  MetaResult result{options.folder,
                    options.files,
                    options.bytes,
                    options.threads,
                    options.folders,
                    {},
                    notes_of(options, scratch.leftovers())};
  double done = 0;
  for (const PhaseKind& kind : kPhases) {
    for (Hand& hand : hands) hand.begin_phase();
    const double begun = std::exchange(done, done + 1.0 / std::size(kPhases));
    const auto act = [&](int thread) -> std::int64_t {
      Hand& hand = hands[static_cast<std::size_t>(thread)];
      if (kind.act == nullptr) {
        return hand.list(options.folders == Folders::kShared ? options.files : hand.files());
      }
      const std::int64_t file = hand.next();
      if (file < 0) return 0;
      (hand.*kind.act)(file);
      return 1;
    };
    result.phases.push_back({kind.name, measure({.threads = options.threads,
                                                 .what = std::string(kind.name),
                                                 .longest = kLongest,
                                                 .watch = &options.watch,
                                                 .begun = begun,
                                                 .done = done},
                                                act)});
  }
  return result;
}

}  // namespace bedplate::bench
