#include "probe/internal/bpf_programs.h"

#include <bpf/bpf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/embedded.h"
#include "base/text.h"
#include "probe/internal/job_groups.h"

namespace bedplate {
std::span<const EmbeddedFile> bpf_objects();  // generated from src/probe/bpf
}

namespace bedplate::probe {
namespace {

constexpr std::size_t kMostProcesses = 4096;  // room in the map job_processes
constexpr std::string_view kOptional = "_optional";

// Inode numbers of the first namespaces: include/linux/proc_ns.h.
constexpr ino_t kFirstCgroupNamespace = 0xEFFFFFFB;
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

// libbpf explains failures in words, to one function for the whole process. Kept, a thread: the
// program that was spoken of last, and the verifier's verdict if there is one, else the first words
// about it.
struct FailureWords {
  std::string program;
  std::string why;
  bool verdict = false;
};
thread_local FailureWords told;

int keep_words(enum libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN) return 0;
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length <= 0) return 0;
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);

  constexpr std::string_view kAbout = "prog '";
  if (const auto at = text.find(kAbout); at != std::string::npos) {
    const auto name = std::string_view(text).substr(at + kAbout.size());
    const std::string program(name.substr(0, name.find('\'')));
    if (program != told.program) told = {program, std::string(trim(text)), false};
  }
  if (text.find("BEGIN PROG LOAD LOG") != std::string::npos) {
    // The verifier's log ends in "processed 5 insns …"; the line before it says why.
    for (const std::string_view line : split(text, '\n')) {
      if (line.starts_with("processed ")) break;
      if (!trim(line).empty()) told.why = std::string(trim(line));
    }
    told.verdict = true;
  }
  if (told.program.empty()) told.why = std::string(trim(text));
  return 0;
}

void need_capabilities(const os::HostRoot& host) {
  constexpr int kSysAdmin = 21, kPerfmon = 38, kBpf = 39;
  const std::string status = host.read("/proc/self/status").value_or("");
  constexpr std::string_view kKey = "CapEff:";
  const std::size_t at = status.find(kKey);
  if (at == std::string::npos) return;  // then the kernel decides
  const auto rest = words(std::string_view(status).substr(at + kKey.size()));
  const auto effective = rest.empty() ? std::nullopt : to_int(rest.front(), 16);
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

// "sched" of "sched_on_switch".
std::string_view signal_of(std::string_view program) {
  return program.substr(0, program.find('_'));
}

Error refusal(int error) {
  if (error == -ESRCH)
    return Error(Code::kUnsupported, "this kernel has no such tracepoint ({})", told.why);
  if (error == -EPERM)
    return Error(Code::kPermission, "not permitted: this kernel refuses BPF programs, to root too");
  return Error(Code::kUnsupported, "this kernel does not take the BPF program: {} ({})",
               std::strerror(-error), told.why);
}

}  // namespace

std::shared_ptr<BpfPrograms> BpfPrograms::of_job(const SampleContext& context) {
  // Held by the samplers of a job, so that the last one to go takes the programs with it.
  thread_local std::weak_ptr<BpfPrograms> loaded;

  if (!context.host.live())
    throw Error(Code::kUnsupported, "a recorded machine runs no BPF programs");
  if (!context.host.exists("/sys/kernel/btf/vmlinux")) {
    throw Error(Code::kUnsupported,
                "this kernel does not describe itself (no BTF: CONFIG_DEBUG_INFO_BTF)");
  }
  need_capabilities(context.host);
  bpf_job job = describe_job(context);
  if (auto known = loaded.lock()) {
    job.since = known->job_.since;
    if (std::memcmp(&job, &known->job_, sizeof job) == 0) return known;
  }
  auto programs = std::make_shared<BpfPrograms>(job);
  loaded = programs;
  return programs;
}

BpfPrograms::BpfPrograms(const bpf_job& job) : job_(job) {
  libbpf_set_print(keep_words);
  for (;;) {
    open();
    told = {};
    const int error = bpf_object__load(object_.get());
    if (error == 0) return;
    if (!leave_out(error)) throw refusal(error);
  }
}

void BpfPrograms::open() {
  const auto objects = bpf_objects();
  BEDPLATE_CHECK(objects.size() == 1);
  const std::string_view bytes = objects.front().bytes;
  bpf_object_open_opts options{};
  options.sz = sizeof options;
  options.object_name = "bedplate";
  // libbpf reads ELF structures in place, and embedded bytes are not aligned.
  std::vector<std::uint64_t> aligned(bytes.size() / sizeof(std::uint64_t) + 1);
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  object_.reset(bpf_object__open_mem(aligned.data(), bytes.size(), &options));
  if (!object_) throw errno_error(errno, "reading the BPF programs");
  bpf_map* config = bpf_object__find_map_by_name(object_.get(), ".rodata.job");
  BEDPLATE_CHECK(config != nullptr && bpf_map__set_initial_value(config, &job_, sizeof job_) == 0);

  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_.get()) {
    const std::string_view name = bpf_program__name(program);
    if (refused_.contains(name) || refused_.contains(signal_of(name)))
      bpf_program__set_autoload(program, false);
  }
}

// Remembers what the kernel refused; false when that says nothing new and nothing less can be
// tried.
bool BpfPrograms::leave_out(int error) {
  if (told.program.empty()) return false;
  const std::string_view name = told.program;
  const std::string_view what = name.ends_with(kOptional) ? name : signal_of(name);
  return refused_.try_emplace(std::string(what), refusal(error)).second;
}

void BpfPrograms::check(std::string_view signal) const {
  if (const auto found = refused_.find(signal); found != refused_.end()) throw found->second;
}

void BpfPrograms::follow(std::span<const JobProcess> processes) {
  if (by_group()) return;
  std::vector<std::uint32_t> now;
  now.reserve(processes.size());
  for (const JobProcess& process : processes)
    now.push_back(static_cast<std::uint32_t>(process.pid));
  std::ranges::sort(now);
  if (now.size() > kMostProcesses) now.resize(kMostProcesses);
  if (now == followed_) return;  // as for all but the first sampler of a tick
  const int fd = bpf_object__find_map_fd_by_name(object_.get(), "job_processes");
  const std::uint8_t present = 1;
  for (const std::uint32_t pid : followed_) {
    if (!std::ranges::binary_search(now, pid)) bpf_map_delete_elem(fd, &pid);
  }
  for (const std::uint32_t pid : now) {
    if (!std::ranges::binary_search(followed_, pid))
      bpf_map_update_elem(fd, &pid, &present, BPF_ANY);
  }
  followed_ = std::move(now);
}

}  // namespace bedplate::probe
