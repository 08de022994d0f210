// One object on a raw block device, or on a file that stands for one: block:///dev/nvme1n1. No file
// system lies between, so none of its locks, and reads go past the page cache.
//
// The object begins at byte 0. The last 4 KiB of the device say how long it is and whether it is
// whole (Trailer); they are written last, so that an object appears whole or not at all. A device
// without them is one object of its whole size, as somebody else wrote it.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "base/crc32c.h"
#include "base/text.h"
#include "os/durable_file.h"
#include "os/unique_fd.h"
#include "store/driver.h"
#include "store/internal/direct_reads.h"

namespace bedplate::store {
namespace {

constexpr std::size_t kBlock = kDirectAlignment;
constexpr std::size_t kPiece = 1 * kMiB;  // that is written at once

enum class State : std::uint64_t { kWriting = 1, kWhole = 2 };

// Little-endian, at the device's last kBlock bytes; the rest of them is zero.
struct Trailer {
  char magic[8];
  State state;
  std::int64_t size;      // bytes of the object
  std::uint64_t content;  // random, another one for each object that was written
  std::uint32_t crc;      // CRC32C of the above
};
constexpr char kMagic[8] = {'B', 'P', 'D', 'E', 'V', 'I', 'C', 'E'};

std::uint32_t crc_of(const Trailer& trailer) {
  return crc32c(std::string_view(reinterpret_cast<const char*>(&trailer), offsetof(Trailer, crc)));
}

class Device {
 public:
  // `flags`: O_RDONLY or O_RDWR.
  Device(std::string path, int flags)
      : path_(std::move(path)), fd_(::open(path_.c_str(), flags | O_DIRECT | O_CLOEXEC)) {
    // tmpfs and some network file systems have no O_DIRECT.
    if (!fd_ && errno == EINVAL) fd_.reset(::open(path_.c_str(), flags | O_CLOEXEC));
    if (!fd_) throw errno_error(errno, "cannot open " + path_);
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) throw errno_error(errno, "cannot look at " + path_);
    std::uint64_t size = static_cast<std::uint64_t>(status.st_size);
    if (S_ISBLK(status.st_mode)) {
      if (::ioctl(fd_.get(), BLKGETSIZE64, &size) != 0)
        throw errno_error(errno, "cannot get the size of " + path_);
    } else if (!S_ISREG(status.st_mode)) {
      throw Error(Code::kInvalid, "{} is neither a block device nor a file", path_);
    }
    size_ = static_cast<std::int64_t>(size);
  }

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  std::int64_t trailer_at() const { return size_ / kAlign * kAlign - kAlign; }
  bool holds_a_trailer() const { return size_ >= 2 * kAlign; }

  std::optional<Trailer> trailer() const {
    if (!holds_a_trailer()) return std::nullopt;
    const AlignedMemory memory = aligned_memory(kBlock);
    RangeRead read{fd(), trailer_at(), {memory.get(), kBlock}};
    best_read_engine().read({&read, 1}, 1, Deadline::after(kDefaultTimeout));
    if (read.error != 0)
      throw errno_error(read.error > 0 ? read.error : EIO, "cannot read the end of " + path_);
    Trailer trailer;
    std::memcpy(&trailer, memory.get(), sizeof trailer);
    if (std::memcmp(trailer.magic, kMagic, sizeof kMagic) != 0) return std::nullopt;
    if (trailer.crc != crc_of(trailer) || trailer.size < 0 || trailer.size > trailer_at())
      throw Error(Code::kCorrupt, "the last block of {} is damaged: it was Bedplate's", path_);
    return trailer;
  }

  void set_trailer(State state, std::int64_t size, std::uint64_t content) {
    const AlignedMemory memory = aligned_memory(kBlock);
    std::memset(memory.get(), 0, kBlock);
    Trailer trailer{};
    std::memcpy(trailer.magic, kMagic, sizeof kMagic);
    trailer.state = state;
    trailer.size = size;
    trailer.content = content;
    trailer.crc = crc_of(trailer);
    std::memcpy(memory.get(), &trailer, sizeof trailer);
    write({memory.get(), kBlock}, trailer_at());
    flush();
  }

  void write(std::span<const std::byte> bytes, std::int64_t offset) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd(), bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw errno_error(n < 0 ? errno : ENOSPC, "cannot write to " + path_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += n;
    }
  }

  void flush() {
    if (::fsync(fd()) != 0) throw errno_error(errno, "cannot flush " + path_);
  }

 private:
  static constexpr std::int64_t kAlign = kBlock;

  std::string path_;
  os::UniqueFd fd_;
  std::int64_t size_ = 0;
};

std::string version_of(const std::optional<Trailer>& trailer, std::int64_t size) {
  return trailer ? fmt::format("{:016x}", trailer->content) : fmt::format("raw-{:x}", size);
}

class BlockWriter : public ObjectWriter {
 public:
  BlockWriter(const std::string& path, std::string key)
      : key_(std::move(key)), device_(path, O_RDWR), buffer_(aligned_memory(kPiece)) {
    if (!device_.holds_a_trailer())
      throw Error(Code::kNoSpace, "{} is too small to hold an object", path);
    content_ = os::random_bits();
    device_.set_trailer(State::kWriting, 0, content_);
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), kPiece - used_);
      std::memcpy(buffer_.get() + used_, bytes.data(), n);
      used_ += n;
      bytes = bytes.subspan(n);
      if (used_ == kPiece) put_buffer();
    }
  }

  ObjectInfo commit() override {
    const std::int64_t size = at_ + static_cast<std::int64_t>(used_);
    const std::size_t padded = (used_ + kBlock - 1) / kBlock * kBlock;
    std::memset(buffer_.get() + used_, 0, padded - used_);
    used_ = padded;
    put_buffer();
    device_.flush();
    device_.set_trailer(State::kWhole, size, content_);
    return {key_, size, version_of(device_.trailer(), device_.size())};
  }

 private:
  void put_buffer() {
    const auto end = at_ + static_cast<std::int64_t>(used_);
    if (end > device_.trailer_at()) {
      throw Error(Code::kNoSpace, "{} is full: it has room for {}", device_.path(),
                  human_bytes(static_cast<double>(device_.trailer_at())));
    }
    device_.write({buffer_.get(), used_}, at_);
    at_ = end;
    used_ = 0;
  }

  std::string key_;
  Device device_;
  AlignedMemory buffer_;
  std::size_t used_ = 0;  // of buffer_
  std::int64_t at_ = 0;   // a multiple of kBlock until commit()
  std::uint64_t content_ = 0;
};

// Its one key is the device's file name.
class BlockStore : public Store {
 public:
  BlockStore(std::string path, std::string key, const StoreOptions& options)
      : path_(std::move(path)), key_(std::move(key)), options_(options) {}

  std::string url() const override { return "block://" + to_utf8(path_); }

  std::optional<ObjectInfo> find(std::string_view key, Deadline) override {
    check_key(key);
    if (key != key_) return std::nullopt;
    return info_of(Device(path_, O_RDONLY));
  }

  void read(std::span<Read> reads, Deadline deadline) override;

  void list(std::string_view prefix, const Visit& visit, Deadline deadline) override {
    if (!key_.starts_with(prefix)) return;
    if (const auto info = find(key_, deadline)) visit(*info);
  }

  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists, Nanos) override {
    check_key(key);
    if (key != key_) throw Error(Code::kUnsupported, "{} holds one object, named {}", url(), key_);
    if (if_exists == IfExists::kRefuse) {
      const auto there = find(key, Deadline::after(kDefaultTimeout));
      if (there && there->size > 0)
        throw Error(Code::kExists, "{} may hold data of somebody; say that it is to be replaced",
                    url());
    }
    return std::make_unique<BlockWriter>(path_, key_);
  }

  // What removes an object of ours makes an empty one: the device stays.
  void remove(std::string_view key, Deadline) override {
    check_key(key);
    if (key != key_) return;
    Device device(path_, O_RDWR);
    if (device.trailer()) device.set_trailer(State::kWriting, 0, 0);
  }

 private:
  std::optional<ObjectInfo> info_of(const Device& device) const {
    const auto trailer = device.trailer();
    if (trailer && trailer->state != State::kWhole) return std::nullopt;
    return ObjectInfo{key_, trailer ? trailer->size : device.size(),
                      version_of(trailer, device.size())};
  }

  std::string path_;
  std::string key_;
  StoreOptions options_;
};

void BlockStore::read(std::span<Read> reads, Deadline deadline) {
  std::vector<RangeRead> ranges;
  std::vector<Read*> of_range;
  std::optional<Device> device;
  std::optional<ObjectInfo> info;
  begin_reads(reads, [&](Read& one) {
    if (!device) {
      device.emplace(path_, O_RDONLY);
      info = info_of(*device);
    }
    check_key(one.key);
    if (one.key != key_ || !info)
      throw Error(Code::kNotFound, "{} has no object {}", url(), to_utf8(one.key));
    check_read(one, info->size, info->version, *this);
    if (one.into.empty()) return;
    ranges.push_back({device->fd(), one.offset, one.into});
    of_range.push_back(&one);
  });
  read_directly(best_read_engine(), ranges, options_.queue_depth, deadline);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const int error = ranges[i].error;
    if (error == 0) continue;
    of_range[i]->error =
        error == ETIMEDOUT
            ? Error(Code::kTimeout, "a read of {} had not begun when time was up", url())
            : errno_error(error > 0 ? error : EIO,
                          fmt::format("cannot read {} bytes from byte {} of {}",
                                      ranges[i].into.size(), ranges[i].offset, url()));
  }
}

Driver::Opened open_block(const Url& url, const StoreOptions& options) {
  const auto slash = url.path.rfind('/');
  const std::string key = slash == std::string::npos ? "" : url.path.substr(slash + 1);
  if (key.empty())
    throw Error(Code::kInvalid, "block://{} names no device; write block:///dev/nvme1n1",
                to_utf8(url.path));
  return {std::make_shared<BlockStore>(url.path, key, options), key};
}

constexpr std::string_view kSchemes[] = {"block"};

}  // namespace

extern const Driver kBlockDevice = {
    .name = "block",
    .schemes = kSchemes,
    .summary = "one object on a raw block device, without a file system",
    .open = open_block,
};

}  // namespace bedplate::store
