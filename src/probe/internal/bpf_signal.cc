#include "probe/internal/bpf_signal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "probe/internal/bpf_programs.h"

namespace bedplate::probe {
namespace {

struct DestroyLink {
  void operator()(bpf_link* link) const { bpf_link__destroy(link); }
};
struct FreeRing {
  void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
};

}  // namespace

struct BpfSignal::State {
  std::shared_ptr<BpfPrograms> programs;                      // shared by the signals of one job
  std::vector<std::unique_ptr<bpf_link, DestroyLink>> links;  // destroyed before their programs
  std::unique_ptr<ring_buffer, FreeRing> ring;
  std::function<void(std::span<const std::byte>)> on_record;
  std::string source;
  int sums_fd = -1;
  mutable std::vector<std::uint64_t> slots;

  int map_fd(const char* name) const {
    const int fd = bpf_object__find_map_fd_by_name(programs->object(), name);
    BEDPLATE_CHECK(fd >= 0);
    return fd;
  }
  void attach(std::string_view prefix);
};

void BpfSignal::State::attach(std::string_view prefix) {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, programs->object()) {
    if (!std::string_view(bpf_program__name(program)).starts_with(prefix) ||
        !bpf_program__autoload(program))
      continue;
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

BpfSignal::BpfSignal(const SampleContext& context, std::string_view name)
    : state_(std::make_unique<State>()) {
  state_->programs = BpfPrograms::of_job(context);
  state_->programs->check(name);
  const std::string prefix = std::string(name) + "_";
  state_->attach(prefix);
  state_->sums_fd =
      bpf_object__find_map_fd_by_name(state_->programs->object(), (prefix + "sums").c_str());
}

BpfSignal::BpfSignal(BpfSignal&&) noexcept = default;
BpfSignal& BpfSignal::operator=(BpfSignal&&) noexcept = default;
BpfSignal::~BpfSignal() = default;

bool BpfSignal::by_group() const { return state_->programs->by_group(); }
const std::string& BpfSignal::source() const { return state_->source; }
void BpfSignal::follow(std::span<const JobProcess> processes) {
  state_->programs->follow(processes);
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
