#include "probe/internal/bpf_signal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/text.h"
#include "probe/bpf/shared.h"
#include "probe/internal/job_groups.h"

namespace bedplate {
std::span<const EmbeddedFile> bpf_objects();  // generated from src/probe/bpf
}

namespace bedplate::probe {
namespace {

constexpr std::size_t kMostProcesses = 4096;  // room in the map job_processes

// Inode numbers of the first namespaces: include/linux/proc_ns.h.
constexpr ino_t kFirstCgroupNamespace = 0xEFFFFFFB;
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

// libbpf explains failures in words, to one function for the whole program. What is kept, a thread,
// is the verifier's verdict if there is one, else the last words.
thread_local std::string last_words;
thread_local bool have_verdict = false;

int keep_words(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || have_verdict) return 0;
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length <= 0) return 0;
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  if (text.find("BEGIN PROG LOAD LOG") == std::string::npos) {
    last_words = std::string(trim(text));
    return 0;
  }
  // The log ends in "processed 5 insns …"; the line before it says why.
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("processed ")) break;
    if (!trim(line).empty()) last_words = std::string(trim(line));
  }
  have_verdict = true;
  return 0;
}

void need_capabilities(const os::HostRoot& host) {
  constexpr int kSysAdmin = 21, kPerfmon = 38, kBpf = 39;
  const std::string status = host.read("/proc/self/status").value_or("");
  const std::size_t at = status.find("CapEff:");
  if (at == std::string::npos) return;  // then the kernel decides
  const auto effective = to_int(words(std::string_view(status).substr(at + 7)).front(), 16);
  if (!effective) return;
  const auto has = [&](int capability) { return (*effective >> capability & 1) != 0; };
  if (has(kSysAdmin) || (has(kBpf) && has(kPerfmon))) return;
  throw Error(Code::kPermission, "not permitted: BPF needs root, or CAP_BPF and CAP_PERFMON");
}

ino_t inode_of(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

int parts_of(std::string_view path) {
  return static_cast<int>(
      std::ranges::count_if(split(path, '/'), [](std::string_view part) { return !part.empty(); }));
}

// The group's depth below the true root; -1 where the mount or a namespace hides a part of the
// tree.
long long level_of(const os::CgroupTree& tree, const os::Cgroup& group) {
  if (inode_of("/proc/self/ns/cgroup") != kFirstCgroupNamespace) return -1;
  for (const os::CgroupHierarchy& hierarchy : tree.hierarchies()) {
    if (!hierarchy.unified || !group.folder.starts_with(hierarchy.mount)) continue;
    if (hierarchy.mount_root.find("..") != std::string::npos) return -1;
    return parts_of(hierarchy.mount_root) +
           parts_of(std::string_view(group.folder).substr(hierarchy.mount.size()));
  }
  return -1;
}

bpf_job describe_job(const SampleContext& context) {
  bpf_job job{};
  job.since = static_cast<unsigned long long>(real_clock().now());
  struct stat status {};
  if (inode_of("/proc/self/ns/pid") != kFirstPidNamespace &&
      ::stat("/proc/self/ns/pid", &status) == 0) {
    job.pid_ns_dev = status.st_dev;
    job.pid_ns_ino = status.st_ino;
  }
  try {
    const os::Cgroup group = own_group(context, "");
    // A v2 group's id is its folder's inode number.
    if (group.unified) {
      job.cgroup = inode_of(context.host.resolve(group.folder).c_str());
      job.level = level_of(context.cgroups, group);
    }
  } catch (const Error&) {
    // No group of its own: follow() tells the processes.
  }
  return job;
}

struct CloseObject {
  void operator()(bpf_object* object) const { bpf_object__close(object); }
};
struct DestroyLink {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
struct FreeRing {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

}  // namespace

struct BpfSignal::State {
  std::unique_ptr<bpf_object, CloseObject> object;
  std::vector<std::unique_ptr<bpf_link, DestroyLink>> links;  // destroyed first
  std::unique_ptr<ring_buffer, FreeRing> ring;
  std::function<void(std::span<const std::byte>)> on_record;
  std::set<std::uint32_t> followed;
  bool by_group = false;
  std::string source;
  int sums_fd = -1;
  mutable std::vector<std::uint64_t> slots;

  int map_fd(const char* name) const {
    const int fd = bpf_object__find_map_fd_by_name(object.get(), name);
    BEDPLATE_CHECK(fd >= 0);
    return fd;
  }
  void open(std::string_view name, const bpf_job& job);
  int load(bool optional_too);
  void attach();
};

void BpfSignal::State::open(std::string_view name, const bpf_job& job) {
  const std::string file = fmt::format("{}.bpf.o", name);
  const auto objects = bpf_objects();
  const auto found = std::ranges::find(objects, std::string_view(file), &EmbeddedFile::path);
  BEDPLATE_CHECK(found != objects.end());
  bpf_object_open_opts options{};
  options.sz = sizeof options;
  options.object_name = file.c_str();
  // libbpf reads ELF structures in place, and embedded bytes are not aligned.
  const std::vector<std::uint64_t> aligned = [&] {
    std::vector<std::uint64_t> copy(found->bytes.size() / sizeof(std::uint64_t) + 1);
    std::memcpy(copy.data(), found->bytes.data(), found->bytes.size());
    return copy;
  }();
  object.reset(bpf_object__open_mem(aligned.data(), found->bytes.size(), &options));
  if (!object) throw errno_error(errno, fmt::format("reading the BPF object {}", file));
  bpf_map* config = bpf_object__find_map_by_name(object.get(), ".rodata.job");
  BEDPLATE_CHECK(config != nullptr && bpf_map__set_initial_value(config, &job, sizeof job) == 0);
}

// 0, or a negative errno of the load. A program whose name ends in "_optional" may be missing on
// some kernels.
int BpfSignal::State::load(bool optional_too) {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object.get()) {
    const bool optional = std::string_view(bpf_program__name(program)).ends_with("_optional");
    if (optional && !optional_too) bpf_program__set_autoload(program, false);
  }
  return bpf_object__load(object.get());
}

void BpfSignal::State::attach() {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object.get()) {
    if (!bpf_program__autoload(program)) continue;
    bpf_link* link = bpf_program__attach(program);
    const std::string section = bpf_program__section_name(program);
    if (link == nullptr) {
      const int error = errno;
      if (error == EPERM || error == EACCES) {
        throw Error(Code::kPermission, "not permitted: this kernel refuses to attach BPF to {}",
                    section);
      }
      throw Error(Code::kUnsupported, "BPF cannot be attached to {} here: {}", section,
                  std::strerror(error));
    }
    links.emplace_back(link);
    source += (source.empty() ? "BPF " : ", ") + section;
  }
}

BpfSignal::BpfSignal(const SampleContext& context, std::string_view object)
    : state_(std::make_unique<State>()) {
  if (!context.host.live())
    throw Error(Code::kUnsupported, "a recorded machine runs no BPF programs");
  if (!context.host.exists("/sys/kernel/btf/vmlinux")) {
    throw Error(Code::kUnsupported,
                "this kernel does not describe itself (no BTF: CONFIG_DEBUG_INFO_BTF)");
  }
  need_capabilities(context.host);
  libbpf_set_print(keep_words);
  const bpf_job job = describe_job(context);
  state_->by_group = job.cgroup != 0;
  int error = 0;
  for (const bool optional_too : {true, false}) {
    state_->open(object, job);
    last_words.clear();
    have_verdict = false;
    error = state_->load(optional_too);
    if (error != -ESRCH) break;  // ESRCH: a tracepoint is not there
  }
  if (error == -ESRCH)
    throw Error(Code::kUnsupported, "this kernel has no such tracepoint ({})", last_words);
  if (error == -EPERM)
    throw Error(Code::kPermission, "not permitted: this kernel refuses BPF programs, to root too");
  if (error < 0) {
    throw Error(Code::kUnsupported, "this kernel does not take the BPF program: {} ({})",
                std::strerror(-error), last_words);
  }
  state_->attach();
  state_->sums_fd = bpf_object__find_map_fd_by_name(state_->object.get(), "sums");
}

BpfSignal::BpfSignal(BpfSignal&&) noexcept = default;
BpfSignal& BpfSignal::operator=(BpfSignal&&) noexcept = default;
BpfSignal::~BpfSignal() = default;

bool BpfSignal::by_group() const { return state_->by_group; }
const std::string& BpfSignal::source() const { return state_->source; }

void BpfSignal::follow(std::span<const JobProcess> processes) {
  if (state_->by_group) return;
  std::set<std::uint32_t> now;
  for (const JobProcess& process : processes) {
    if (now.size() < kMostProcesses) now.insert(static_cast<std::uint32_t>(process.pid));
  }
  const int fd = state_->map_fd("job_processes");
  const std::uint8_t present = 1;
  for (const std::uint32_t pid : state_->followed) {
    if (!now.contains(pid)) bpf_map_delete_elem(fd, &pid);
  }
  for (const std::uint32_t pid : now) {
    if (!state_->followed.contains(pid)) bpf_map_update_elem(fd, &pid, &present, BPF_ANY);
  }
  state_->followed = std::move(now);
}

void BpfSignal::add_sums(std::span<std::uint64_t> into) const {
  const std::uint32_t zero = 0;
  state_->slots.resize(static_cast<std::size_t>(libbpf_num_possible_cpus()) * into.size());
  if (bpf_map_lookup_elem(state_->sums_fd, &zero, state_->slots.data()) != 0) return;
  for (std::size_t i = 0; i < state_->slots.size(); ++i) into[i % into.size()] += state_->slots[i];
}

void BpfSignal::each(
    const char* map, std::size_t slot_bytes,
    const std::function<void(std::uint32_t, std::span<const std::byte>)>& visit) const {
  const int fd = state_->map_fd(map);
  state_->slots.resize(static_cast<std::size_t>(libbpf_num_possible_cpus()) * slot_bytes /
                       sizeof(std::uint64_t));
  std::uint32_t key = 0, next = 0;
  for (const void* from = nullptr; bpf_map_get_next_key(fd, from, &next) == 0; from = &key) {
    key = next;
    if (bpf_map_lookup_elem(fd, &key, state_->slots.data()) == 0)
      visit(key, std::as_bytes(std::span(state_->slots)));
  }
}

void BpfSignal::put(const char* map, std::uint32_t key, std::uint64_t value) {
  bpf_map_update_elem(state_->map_fd(map), &key, &value, BPF_ANY);
}

void BpfSignal::drain(const char* ring,
                      const std::function<void(std::span<const std::byte>)>& visit) {
  if (!state_->ring) {
    const auto receive = [](void* state, void* data, std::size_t size) {
      static_cast<State*>(state)->on_record({static_cast<const std::byte*>(data), size});
      return 0;
    };
    state_->ring.reset(ring_buffer__new(state_->map_fd(ring), receive, state_.get(), nullptr));
    if (!state_->ring) return;  // out of memory: tried again at the next tick
  }
  state_->on_record = visit;
  ring_buffer__consume(state_->ring.get());
}

std::int64_t as_value(std::uint64_t sum) {
  return static_cast<std::int64_t>(
      std::min(sum, static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())));
}

}  // namespace bedplate::probe
