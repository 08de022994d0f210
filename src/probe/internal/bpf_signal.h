// One signal of the BPF programs in src/probe/bpf: attached, and read.
//
//   BpfSignal bpf(context, "sched");
//   bpf.follow(processes);                                  // each tick
//   const auto sums = bpf.sums<bpf_sched_sums>();           // added up over all processors
//
// Nothing is pinned: programs and maps go with this process, however it ends. Not thread-safe.
//
// Throws Error{kPermission} without CAP_BPF and CAP_PERFMON or where the kernel refuses to attach,
// Error{kUnsupported} on a kernel without BTF or without the tracepoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "probe/sampler.h"

namespace bedplate::probe {

class BpfSignal {
 public:
  BpfSignal(const SampleContext& context, std::string_view name);
  BpfSignal(BpfSignal&&) noexcept;
  BpfSignal& operator=(BpfSignal&&) noexcept;
  ~BpfSignal();

  // Tells the programs which processes are the job's, where it has no v2 group of its own.
  void follow(std::span<const JobProcess> processes);
  // The job is told by its group: processes are not missed however short they live.
  bool by_group() const;

  // The only slot of the map NAME_sums, a struct of uint64 members.
  template <typename Sums>
  Sums sums() const {
    Sums total{};
    static_assert(sizeof(Sums) % sizeof(std::uint64_t) == 0);
    add_sums(
        std::span(reinterpret_cast<std::uint64_t*>(&total), sizeof(Sums) / sizeof(std::uint64_t)));
    return total;
  }

  // Every entry of a hash map with a slot for each processor: its key and the slots, one after the
  // other.
  void each(
      const char* map, std::size_t slot_bytes,
      const std::function<void(std::uint32_t key, std::span<const std::byte> slots)>& visit) const;

  void put(const char* map, std::uint32_t key, std::uint64_t value);

  // Calls `visit` for each record that has arrived in a ring.
  void drain(const char* ring, const std::function<void(std::span<const std::byte>)>& visit);

  const std::string& source() const;  // "BPF tp_btf/block_rq_issue, tp_btf/block_rq_complete"

 private:
  void add_sums(std::span<std::uint64_t> into) const;

  struct State;
  std::unique_ptr<State> state_;
};

// A sum of the kernel's as a value that can be written: one that would not fit is held at the
// greatest.
std::int64_t as_value(std::uint64_t sum);

}  // namespace bedplate::probe
