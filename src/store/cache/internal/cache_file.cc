#include "store/cache/internal/cache_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "os/durable_file.h"
#include "os/per_process.h"
#include "os/unique_fd.h"
#include "store/cache/internal/memory_meeting.h"

namespace bedplate::store::cache {
namespace {

// The one descriptor that this process has of each file.
class Descriptors {
 public:
  // -1: there is no such file. Not through a symbolic link that another user may have put there,
  // unless it is one of /proc.
  enum class Links { kRefuse, kFollow };
  int open(const std::filesystem::path& path, Links links) {
    const std::lock_guard lock(mutex_);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) {
      if (const auto at = files_.find({status.st_dev, status.st_ino}); at != files_.end()) {
        ++at->second.uses;
        return at->second.fd;
      }
    }
    const int refuse = links == Links::kRefuse ? O_NOFOLLOW : 0;
    os::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | refuse));
    if (!fd && errno == ENOENT) return -1;
    if (!fd) throw errno_error(errno, fmt::format("cannot open the cache {}", path.string()));
    if (::fstat(fd.get(), &status) != 0)
      throw errno_error(errno, fmt::format("cannot look at the cache {}", path.string()));
    if (!S_ISREG(status.st_mode))
      throw Error(Code::kCorrupt, "{} is no file of a cache; remove it", path.string());
    return add(std::move(fd), status);
  }

  int take(os::UniqueFd fd) {
    const std::lock_guard lock(mutex_);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
      throw errno_error(errno, "cannot look at a cache in memory");
    return add(std::move(fd), status);
  }

  void close(int fd) {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::ranges::find_if(files_, [&](const auto& file) { return file.second.fd == fd; });
    if (at == files_.end() || --at->second.uses > 0) return;  // or it is the parent's
    ::close(fd);
    files_.erase(at);
  }

 private:
  struct File {
    int fd = -1;
    int uses = 0;
  };

  int add(os::UniqueFd fd, const struct stat& status) {
    auto& file = files_[{status.st_dev, status.st_ino}];
    // Replaced since stat(): of a file that is in use here none may be closed.
    if (file.uses++ == 0)
      file.fd = fd.release();
    else
      static_cast<void>(fd.release());
    return file.fd;
  }

  std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, File> files_;
};

Descriptors& descriptors() {
  static os::PerProcess<Descriptors> all;
  return all.get();
}

Header header_for(std::uint64_t block_bytes, std::uint64_t slots, const Hash128& key) {
  Header header{};
  std::ranges::copy(kMagic, header.magic);
  header.layout = 1;
  header.block_bytes = static_cast<std::uint32_t>(block_bytes);
  header.slots = slots;
  header.buckets = slots / (kBucketCells / 2) + 1;
  header.key = key;
  header.policies_at = rounded_up(kOriginsAt + kOrigins * sizeof(Origin), kPage);
  header.entries_at = rounded_up(header.policies_at + slots * sizeof(Policy), kPage);
  header.buckets_at = rounded_up(header.entries_at + slots * sizeof(Entry), kPage);
  const std::uint64_t buckets = header.buckets + kBucketsLooked - 1;
  header.ghosts_at = rounded_up(header.buckets_at + buckets * sizeof(Bucket), kPage);
  header.blocks_at =
      rounded_up(header.ghosts_at + (slots / kGhostWays + 1) * sizeof(GhostSet), kPage);
  header.crc = crc_of(header);
  return header;
}

void check_block_bytes(std::int64_t bytes) {
  if (bytes < 64 * kKiB || bytes > 64 * kMiB ||
      !std::has_single_bit(static_cast<std::uint64_t>(bytes)))
    throw Error(Code::kInvalid,
                "a cache's blocks have a power of two of bytes, 64 KiB to 64 MiB; {} is none",
                bytes);
}

// Slots for blocks of an eighth of the full size on average, but no file beyond what ext4 takes.
std::uint64_t slots_for(std::int64_t cap_bytes, std::int64_t block_bytes) {
  constexpr std::int64_t kLargestFile = 15L << 40;
  const std::int64_t whole = cap_bytes / block_bytes;
  const std::int64_t wanted =
      std::min(cap_bytes / (block_bytes / 8), std::max(whole, kLargestFile / block_bytes));
  return static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 16, 1L << 31));
}

std::int64_t default_cap(const std::filesystem::path& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0)
    throw errno_error(errno, fmt::format("cannot see how much is free in {}", folder.string()));
  return static_cast<std::int64_t>(0.8 * static_cast<double>(space.f_bavail) *
                                   static_cast<double>(space.f_frsize));
}

void make_folder(const std::filesystem::path& folder, SharedWith shared_with) {
  constexpr mode_t kModes[] = {0700, 02770, 01777};
  const mode_t mode = kModes[static_cast<int>(shared_with)];
  if (::mkdir(folder.c_str(), mode) != 0) {
    if (errno == EEXIST) return;
    if (errno == ENOENT)
      throw Error(Code::kNotFound, "the cache's folder {} cannot be made: {} does not exist",
                  folder.string(), folder.parent_path().string());
    throw errno_error(errno, fmt::format("cannot make the cache's folder {}", folder.string()));
  }
  if (::chmod(folder.c_str(), mode) != 0)  // what the umask took
    throw errno_error(errno, fmt::format("cannot share the cache's folder {}", folder.string()));
}

// An empty cache: how it begins, and its size with the index, which is sparse.
struct NewFile {
  std::string begin;
  off_t bytes;
};

NewFile new_file(std::int64_t cap, std::int64_t block_bytes) {
  const Header header =
      header_for(static_cast<std::uint64_t>(block_bytes), slots_for(cap, block_bytes),
                 {os::random_bits(), os::random_bits()});
  State state{};
  state.changing = 1;  // so that the first who changes anything makes the index
  state.cap_bytes = cap;
  state.crc = crc_of(state);
  std::string begin(kOrdersAt, '\0');
  std::memcpy(begin.data(), &header, sizeof header);
  std::memcpy(begin.data() + kStateAt, &state, sizeof state);
  return {std::move(begin), static_cast<off_t>(header.blocks_at)};
}

void make_file(const std::filesystem::path& folder, const CacheOptions& options) {
  check_block_bytes(options.block_bytes);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    throw errno_error(errno, fmt::format("cannot look at the cache's folder {}", folder.string()));
  if (!S_ISDIR(status.st_mode))
    throw Error(Code::kInvalid, "{} is no folder; a cache wants one", folder.string());
  const NewFile made = new_file(options.cap_bytes > 0 ? options.cap_bytes : default_cap(folder),
                                options.block_bytes);
  os::DurableFile file(folder / kFileName);
  file.write(made.begin);
  const mode_t mode = status.st_mode & S_IWOTH ? 0666 : status.st_mode & S_IWGRP ? 0660 : 0600;
  if (::fchmod(file.fd(), mode) != 0 || ::ftruncate(file.fd(), made.bytes) != 0)
    throw errno_error(errno, fmt::format("cannot make a cache in {}", folder.string()));
  try {
    file.commit(os::DurableFile::IfExists::kRefuse);
  } catch (const Error& error) {
    if (error.code() != Code::kExists) throw;  // another process was faster
  }
}

struct flock record_lock(short type, std::uint64_t at) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  return lock;
}

}  // namespace

CacheFile::CacheFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

CacheFile::~CacheFile() {
  descriptors().close(fd_);
  if (!memory_name_.empty()) MemoryMeeting(memory_name_).tidy();
}

// Error{kCorrupt} when it does not begin as a cache does.
void CacheFile::read_header() {
  read(0, raw_writable(header_));
  const auto refuse = [&] {
    throw Error(Code::kCorrupt, "{} is no cache, or damaged at its begin; remove it",
                path_.string());
  };
  if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0 || header_.crc != crc_of(header_) ||
      header_.slots == 0 || header_.slots > 1UL << 31 || header_.block_bytes < 64 * kKiB ||
      header_.block_bytes > 64 * kMiB || !std::has_single_bit(header_.block_bytes))
    refuse();
  const Header expected = header_for(header_.block_bytes, header_.slots, header_.key);
  if (std::memcmp(&expected, &header_, sizeof header_) != 0) refuse();
}

std::unique_ptr<CacheFile> CacheFile::find(const std::filesystem::path& folder) {
  const auto path = folder / kFileName;
  const int fd = descriptors().open(path, Descriptors::Links::kRefuse);
  if (fd < 0) return nullptr;
  std::unique_ptr<CacheFile> file(new CacheFile(path, fd));
  file->read_header();
  return file;
}

std::unique_ptr<CacheFile> CacheFile::in_memory(const std::string& name,
                                                const CacheOptions& options) {
  check_block_bytes(options.block_bytes);
  MemoryMeeting meeting(name);
  const std::filesystem::path path = "memory:" + name;  // in messages
  const auto adopt = [&](int fd) { return std::unique_ptr<CacheFile>(new CacheFile(path, fd)); };
  std::unique_ptr<CacheFile> file;
  if (const auto offered = meeting.offered()) {
    try {
      const int fd = descriptors().open(*offered, Descriptors::Links::kFollow);
      if (fd >= 0) file = adopt(fd);
      if (file) file->read_header();
    } catch (const Error&) {  // what cannot be used is replaced
      file.reset();
    }
  }
  if (!file) {
    const NewFile made = new_file(options.cap_bytes, options.block_bytes);
    os::UniqueFd fd(::memfd_create("bedplate-cache", MFD_CLOEXEC));
    if (!fd || ::ftruncate(fd.get(), made.bytes) != 0)
      throw errno_error(errno, "cannot make a cache in memory");
    file = adopt(descriptors().take(std::move(fd)));
    file->write(0, std::as_bytes(std::span(made.begin)));
    file->read_header();
    meeting.offer(file->fd());
  }
  file->memory_name_ = name;
  return file;
}

std::unique_ptr<CacheFile> CacheFile::open(const std::filesystem::path& folder,
                                           const CacheOptions& options) {
  check_block_bytes(options.block_bytes);
  make_folder(folder, options.shared_with);
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (auto file = find(folder)) return file;
    make_file(folder, options);
  }
  throw Error(Code::kUnavailable, "the cache in {} is removed as often as it is made",
              folder.string());
}

std::int64_t CacheFile::disk_bytes() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0)
    throw errno_error(errno, fmt::format("cannot look at the cache {}", path_.string()));
  return status.st_blocks * 512;
}

std::int64_t CacheFile::made_for() const {
  return static_cast<std::int64_t>(header_.slots * header_.block_bytes / 8);
}

void CacheFile::read(std::uint64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, fmt::format("cannot read the cache {}", path_.string()));
    if (n == 0) throw Error(Code::kCorrupt, "the cache {} was cut off; remove it", path_.string());
    at += static_cast<std::uint64_t>(n);
    into = into.subspan(static_cast<std::size_t>(n));
  }
}

void CacheFile::write(std::uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, fmt::format("cannot write the cache {}", path_.string()));
    at += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

bool CacheFile::punch(std::uint64_t at, std::uint64_t bytes) const {
  return bytes == 0 || ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0;
}

bool CacheFile::try_lock(std::uint64_t at) const {
  struct flock lock = record_lock(F_WRLCK, at);
  if (::fcntl(fd_, F_SETLK, &lock) == 0) return true;
  if (errno == EACCES || errno == EAGAIN || errno == EINTR) return false;
  throw errno_error(errno, fmt::format("cannot lock the cache {}", path_.string()));
}

void CacheFile::unlock(std::uint64_t at) const {
  struct flock lock = record_lock(F_UNLCK, at);
  ::fcntl(fd_, F_SETLK, &lock);
}

bool CacheFile::locked_by_another_process(std::uint64_t at) const {
  struct flock lock = record_lock(F_WRLCK, at);
  if (::fcntl(fd_, F_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

}  // namespace bedplate::store::cache
