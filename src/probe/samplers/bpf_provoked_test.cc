// The BPF samplers on faults that are made for real: a control group at its memory limit, a lossy
// network, a file system in user space, a device with little room for dirty pages. Each needs root,
// and what it lacks is said when it is skipped.
#include <linux/fuse.h>
#include <linux/loop.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "probe/internal/sampling.h"
#include "probe/samplers/bpf_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kBpfSched, kBpfReclaim, kBpfDirty, kBpfJournal, kBpfTcp, kBpfFuse;

namespace {

class BpfProvokedTest : public BpfJobTest {};

bool write_file(const std::string& path, std::string_view text) {
  const os::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// A v1 memory group with a limit, of this test alone.
class MemoryGroup {
 public:
  MemoryGroup(const os::HostRoot& host, const os::CgroupTree& tree, std::string_view limit) {
    const auto ours = tree.of_process(host, "self", "memory");
    if (!ours || ours->unified) return;
    folder_ = ours->folder + "/bedplate-test-" + std::to_string(::getpid());
    made_ = ::mkdir(folder_.c_str(), 0755) == 0 &&
            write_file(folder_ + "/memory.limit_in_bytes", limit);
  }
  ~MemoryGroup() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  explicit operator bool() const { return made_; }
  void enter() const { write_file(folder_ + "/cgroup.procs", "0"); }
  std::int64_t failcnt() const {
    return os::HostRoot().read_int(folder_ + "/memory.failcnt").value_or(-1);
  }

 private:
  std::string folder_;
  bool made_ = false;
};

TEST_F(BpfProvokedTest, AGroupAtItsMemoryLimitReclaims) {
  const MemoryGroup group(host_, cgroups_, "16M");
  if (!group) GTEST_SKIP() << "no v1 memory group can be made here";
  const os::TestFolder folder;
  const std::string path = (folder.path() / "data").string();
  own_group();
  start([&] {
    group.enter();
    std::ofstream(path) << std::string(8 << 20, 'x');
    std::vector<char> block(1 << 20);
    for (int i = 0; i < 64; ++i)
      std::ofstream(path + std::to_string(i % 4)).write(block.data(), 1 << 20);
    for (int i = 0; i < 64; ++i)
      std::ofstream(path + "big", std::ios::app).write(block.data(), 1 << 20);
  });
  OPEN_OR_SKIP(sampler, kBpfReclaim);
  if (value("cgroup/job", "bpf.memcg_reclaims") < 0)
    GTEST_SKIP() << "this kernel has no tracepoint of memory groups' reclaim";
  reap();
  sampler->sample(processes_, sink_);
  std::printf("    limit hit %ld times: %ld reclaims, %.1f ms; of the whole machine: %ld\n",
              static_cast<long>(group.failcnt()),
              static_cast<long>(value("cgroup/job", "bpf.memcg_reclaims")),
              milliseconds(value("cgroup/job", "bpf.memcg_reclaim_ns")),
              static_cast<long>(value("cgroup/job", "bpf.direct_reclaims")));
  ASSERT_GT(group.failcnt(), 0);
  EXPECT_GT(value("cgroup/job", "bpf.memcg_reclaims"), 0);
  EXPECT_LE(value("cgroup/job", "bpf.memcg_reclaims"), group.failcnt());
  EXPECT_GT(value("cgroup/job", "bpf.memcg_reclaim_ns"), 0);
}

// In a network namespace of the child's own: a loopback that drops what exceeds a small bucket.
TEST_F(BpfProvokedTest, LostSegmentsAreSentAgain) {
  if (::geteuid() != 0 || ::access("/usr/sbin/tc", X_OK) != 0) GTEST_SKIP() << "needs root and tc";
  if (!own_group()) GTEST_SKIP() << "no v2 control group can be made here";
  Shared result;
  start([&] {
    if (::unshare(CLONE_NEWNET) != 0 ||
        std::system("ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 20mbit burst "
                    "4kb limit 12kb") != 0) {
      result[0] = -1;
      return;
    }
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(listener, reinterpret_cast<sockaddr*>(&address), length);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    ::listen(listener, 1);
    std::thread reader([&] {
      const int from = ::accept(listener, nullptr, nullptr);
      char block[65536];
      while (::read(from, block, sizeof block) > 0) {
      }
    });
    const int to = ::socket(AF_INET, SOCK_STREAM, 0);
    ::connect(to, reinterpret_cast<sockaddr*>(&address), length);
    const std::vector<char> block(1 << 20);
    for (std::size_t sent = 0; sent < block.size();) {
      const ssize_t n = ::write(to, block.data() + sent, block.size() - sent);
      if (n <= 0) break;
      sent += static_cast<std::size_t>(n);
    }
    ::close(to);
    reader.join();
    const std::string snmp = os::HostRoot().read("/proc/thread-self/net/snmp").value_or("");
    std::vector<std::string_view> rows;
    for (Lines lines(snmp); auto line = lines.next();) {
      if (line->starts_with("Tcp:")) rows.push_back(*line);
    }
    Words names(rows.at(0)), values(rows.at(1));
    for (auto name = names.next(); !name.empty(); name = names.next()) {
      const auto number = natural(values.next());
      if (name == "RetransSegs") result[0] = number.value_or(-2);
    }
  });
  OPEN_OR_SKIP(sampler, kBpfTcp);
  const std::int64_t host_before = value("host", "bpf.tcp_retransmits");
  reap();
  if (result[0] < 0) GTEST_SKIP() << "a network namespace with a tbf qdisc cannot be made here";
  sampler->sample(processes_, sink_);
  const std::int64_t job = value("cgroup/job", "bpf.tcp_retransmits");
  std::printf("    the namespace's RetransSegs %ld, BPF saw %ld of the job's, %ld in all\n",
              static_cast<long>(result[0]), static_cast<long>(job),
              static_cast<long>(value("host", "bpf.tcp_retransmits") - host_before));
  ASSERT_GT(result[0], 0);
  EXPECT_GT(job, 0);
  EXPECT_LE(job, result[0]);  // a segment of several packets is one event and several RetransSegs
  EXPECT_GE(value("host", "bpf.tcp_retransmits") - host_before, job);
}

// The least that a file system can be: a root folder without names, whose attributes are asked for
// each time.
void serve_fuse(int device, int requests, std::int64_t& served) {
  std::vector<char> buffer(1 << 20);
  while (served < requests) {
    const ssize_t n = ::read(device, buffer.data(), buffer.size());
    if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) break;
    fuse_in_header in;
    std::memcpy(&in, buffer.data(), sizeof in);
    struct {
      fuse_out_header header{};
      union {
        fuse_init_out init;
        fuse_attr_out attr;
      } body{};
    } out;
    out.header.unique = in.unique;
    out.header.len = sizeof out.header;
    if (in.opcode == FUSE_INIT) {
      out.body.init.major = FUSE_KERNEL_VERSION;
      out.body.init.minor = FUSE_KERNEL_MINOR_VERSION;
      out.body.init.max_write = 4096;
      out.header.len += sizeof out.body.init;
    } else if (in.opcode == FUSE_GETATTR) {
      out.body.attr.attr.ino = 1;
      out.body.attr.attr.mode = S_IFDIR | 0755;
      out.body.attr.attr.nlink = 1;
      out.header.len += sizeof out.body.attr;
      ++served;
    } else {
      out.header.error = -ENOSYS;
    }
    (void)!::write(device, &out, out.header.len);
  }
}

TEST_F(BpfProvokedTest, EveryAnswerOfAFileSystemInUserSpaceCounts) {
  constexpr int kStats = 50;
  const os::TestFolder folder;
  const std::string where = folder.path().string();
  const os::UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device) GTEST_SKIP() << "/dev/fuse cannot be opened";
  OPEN_OR_SKIP(sampler, kBpfFuse);
  const std::string options =
      fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", device.get());
  if (::mount("bedplate-test", where.c_str(), "fuse", 0, options.c_str()) != 0)
    GTEST_SKIP() << "FUSE cannot be mounted here";
  const std::int64_t before = value("host", "bpf.fuse_requests");
  const std::int64_t ns_before = value("host", "bpf.fuse_ns");
  std::int64_t served = 0;
  std::thread server([&] { serve_fuse(device.get(), kStats, served); });
  const Nanos begin = real_clock().now();
  for (int i = 0; i < kStats; ++i) {
    struct stat status {};
    EXPECT_EQ(::stat(where.c_str(), &status), 0);
  }
  const Nanos took = real_clock().now() - begin;
  server.join();
  sampler->sample(processes_, sink_);
  ::umount2(where.c_str(), MNT_DETACH);
  const std::int64_t requests = value("host", "bpf.fuse_requests") - before;
  const std::int64_t ns = value("host", "bpf.fuse_ns") - ns_before;
  std::printf("    %ld served, BPF saw %ld requests in %.2f ms; the caller waited %.2f ms\n",
              static_cast<long>(served), static_cast<long>(requests), milliseconds(ns),
              milliseconds(took));
  EXPECT_EQ(served, kStats);
  EXPECT_GE(requests, kStats);
  EXPECT_LE(requests, kStats + 2);  // and the one that begins the session
  EXPECT_GT(ns, 0);
}

// A loop device of this test's own over a file, and its limits of dirty pages.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& file) {
    const os::UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    number_ = control ? ::ioctl(control.get(), LOOP_CTL_GET_FREE) : -1;
    if (number_ < 0) return;
    path_ = fmt::format("/dev/loop{}", number_);
    device_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    const os::UniqueFd backing(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!device_ || !backing || ::ftruncate(backing.get(), 256 << 20) != 0) return;
    bound_ = ::ioctl(device_.get(), LOOP_SET_FD, backing.get()) == 0;
  }
  ~LoopDevice() {
    if (limited_) {
      write_file(bdi() + "max_ratio", "100");
      write_file(bdi() + "strict_limit", "0");
    }
    if (bound_) ::ioctl(device_.get(), LOOP_CLR_FD);
  }
  explicit operator bool() const { return bound_; }
  const std::string& path() const { return path_; }
  int number() const { return number_; }

  // At most so many bytes of it may be dirty (Linux 6.2 and newer).
  bool limit(std::string_view bytes) {
    limited_ = write_file(bdi() + "strict_limit", "1");
    return limited_ && write_file(bdi() + "max_bytes", bytes);
  }

 private:
  std::string bdi() const { return fmt::format("/sys/class/bdi/7:{}/", number_); }

  std::string path_;
  os::UniqueFd device_;
  int number_ = -1;
  bool bound_ = false;
  bool limited_ = false;
};

// An ext4 with a journal: every fsync() of a new file is a commit, which the file system counts,
// too.
TEST_F(BpfProvokedTest, AnFsyncIsACommit) {
  if (::geteuid() != 0 || ::access("/usr/sbin/mkfs.ext4", X_OK) != 0)
    GTEST_SKIP() << "needs root and mkfs.ext4";
  const os::TestFolder folder;
  const std::string where = (folder.path() / "mount").string();
  ::mkdir(where.c_str(), 0755);
  const LoopDevice device((folder.path() / "disk").string());
  if (!device) GTEST_SKIP() << "no loop device can be made here";
  if (std::system(("mkfs.ext4 -q -F -J size=4 " + device.path() + " 2>/dev/null").c_str()) != 0 ||
      ::mount(device.path().c_str(), where.c_str(), "ext4", 0, nullptr) != 0) {
    GTEST_SKIP() << "ext4 cannot be made and mounted here";
  }
  const auto transactions = [&] {
    const std::string path = fmt::format("/proc/fs/jbd2/loop{}-8/info", device.number());
    return natural(Words(host_.read(path).value_or("")).next()).value_or(0);
  };
  auto sampler = open(kBpfJournal);
  if (sampler) {
    const std::int64_t before = value("host", "bpf.journal_commits");
    const std::int64_t ns_before = value("host", "bpf.journal_commit_ns");
    const std::int64_t counted_before = transactions();
    const Nanos begin = real_clock().now();
    for (int i = 0; i < 5; ++i) {
      const os::UniqueFd fd(
          ::open((where + "/" + std::to_string(i)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      EXPECT_EQ(::write(fd.get(), "x", 1), 1);
      EXPECT_EQ(::fsync(fd.get()), 0);
    }
    const Nanos took = real_clock().now() - begin;
    const std::int64_t counted = transactions() - counted_before;
    sampler->sample({}, sink_);
    const std::int64_t commits = value("host", "bpf.journal_commits") - before;
    const std::int64_t ns = value("host", "bpf.journal_commit_ns") - ns_before;
    std::printf(
        "    5 fsyncs in %.1f ms: the journal counted %ld transactions, BPF saw %ld commits of "
        "%.1f ms\n",
        milliseconds(took), static_cast<long>(counted), static_cast<long>(commits),
        milliseconds(ns));
    EXPECT_GE(commits, 5);
    EXPECT_GE(commits, counted);
    EXPECT_GT(ns, 0);
  }
  ::umount2(where.c_str(), MNT_DETACH);
  if (!sampler) GTEST_SKIP() << reason_;
}

// A loop device whose share of dirty pages is small: its writer is put to sleep again and again.
TEST_F(BpfProvokedTest, AWriterOfTooManyDirtyPagesIsPutToSleep) {
  const os::TestFolder folder;
  LoopDevice device((folder.path() / "disk").string());
  if (!device || !device.limit("4194304"))
    GTEST_SKIP()
        << "no loop device with a limit of its own (strict_limit, Linux 6.2) can be made here";
  own_group();
  Shared result;
  start([&] {
    const int fd = ::open(device.path().c_str(), O_WRONLY);
    const std::vector<char> block(1 << 20, 'x');
    const Nanos begin = real_clock().now();
    for (int i = 0; i < 128; ++i) (void)!::write(fd, block.data(), block.size());
    result[0] = real_clock().now() - begin;
    ::close(fd);
  });
  OPEN_OR_SKIP(sampler, kBpfDirty);
  auto sched = open(kBpfSched);
  reap();
  sampler->sample(processes_, sink_);
  sched->sample(processes_, sink_);
  const std::int64_t throttled = value("cgroup/job", "bpf.dirty_throttle_ns");
  const std::int64_t blocked =
      value("cgroup/job", "bpf.offcpu_io_ns") + value("cgroup/job", "bpf.offcpu_other_ns");
  std::printf(
      "    128 MiB written in %.0f ms: put to sleep %ld times for %.0f ms, off its processor %.0f "
      "ms\n",
      milliseconds(result[0]), static_cast<long>(value("cgroup/job", "bpf.dirty_throttles")),
      milliseconds(throttled), milliseconds(blocked));
  EXPECT_GT(throttled, 0);
  EXPECT_LE(
      throttled,
      blocked + blocked / 5);  // the kernel's intention in jiffies against the time that it took
}

}  // namespace
}  // namespace bedplate::probe
