// What each process was started with, as notes: the environment variables that decide about
// threads, debugging and transport ("env", JSON), who traces it ("tracer", a process number, 0 when
// it left), the processors it may use
// ("affinity", a list as "0-3"), and limits ("limits", JSON; -1 is unlimited).
//
// The environment is the one of exec(): what a program sets later is not seen. A process is looked
// at when it appears and again after 1, 2, 4, 8 … ticks (a child has its parent's environment until
// it runs its program, a script binds itself after its imports), then now and then; a note is
// written when it differs from the last one.
#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/per_process.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

// A name that ends in "*" stands for all that begin so. Only names that cannot hold secrets are
// here.
constexpr std::string_view kVariables[] = {
    // threads
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "MKL_NUM_THREADS",
    "MKL_DYNAMIC",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "TORCH_NUM_THREADS",
    "UV_THREADPOOL_SIZE",
    // debugging
    "CUDA_LAUNCH_BLOCKING",
    "TORCH_USE_CUDA_DSA",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_LOGS",
    "TORCH_COMPILE_DEBUG",
    "TORCHDYNAMO_VERBOSE",
    "TORCHDYNAMO_DISABLE",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_JIT",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "GLOO_LOG_LEVEL",
    "PYTHONASYNCIODEBUG",
    "PYTHONDEVMODE",
    "PYTHONTRACEMALLOC",
    "PYTHONMALLOC",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONVERBOSE",
    "PYTHONFAULTHANDLER",
    "PYTHONDUMPREFS",
    "PYTHONOPTIMIZE",
    "PYTHONHASHSEED",
    "PYTHON_GIL",
    "ASAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
    "MSAN_OPTIONS",
    "LSAN_OPTIONS",
    "LD_PRELOAD",
    "LD_DEBUG",
    "LD_AUDIT",
    "LD_BIND_NOW",
    "MALLOC_CHECK_",
    "MALLOC_PERTURB_",
    "MALLOC_TRACE",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    // devices and transport
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "NVIDIA_TF32_OVERRIDE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_*",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_P2P_*",
    "NCCL_SHM_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_*",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "MASTER_PORT",
};
constexpr std::size_t kMostBytes = 256;  // of one value

bool wanted(std::string_view name) {
  return std::ranges::any_of(kVariables, [&](std::string_view pattern) {
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    return name == pattern;
  });
}

std::string environment_json(std::string_view environ) {
  nlohmann::json found = nlohmann::json::object();
  for (const std::string_view entry : split(environ, '\0')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !wanted(entry.substr(0, equals))) continue;
    found[to_utf8(entry.substr(0, equals))] =
        to_utf8(entry.substr(equals + 1).substr(0, kMostBytes));
  }
  return found.dump();
}

struct Limit {
  std::string_view line;
  std::string_view name;
};
constexpr std::array<Limit, 7> kLimits = {{{"Max open files", "open_files"},
                                           {"Max locked memory", "locked_memory_bytes"},
                                           {"Max address space", "address_space_bytes"},
                                           {"Max stack size", "stack_bytes"},
                                           {"Max processes", "processes"},
                                           {"Max core file size", "core_bytes"},
                                           {"Max file size", "file_bytes"}}};

std::string limits_json(std::string_view text) {
  nlohmann::json found = nlohmann::json::object();
  for (Lines lines(text); auto line = lines.next();) {
    for (const Limit& limit : kLimits) {
      if (!line->starts_with(limit.line)) continue;
      const std::string_view soft = Words(line->substr(limit.line.size())).next();
      if (soft == "unlimited") {
        found[std::string(limit.name)] = -1;
      } else if (const auto value = natural(soft)) {
        found[std::string(limit.name)] = *value;
      }
    }
  }
  return found.dump();
}

class ProcEnv final : public Sampler {
 public:
  explicit ProcEnv(const SampleContext& context) : host_(context.host) {
    if (!host_.exists("/proc")) throw Error(Code::kUnsupported, "/proc is not mounted");
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    table_.visit(processes, [&](const JobProcess& process, const std::string&, State& state) {
      const unsigned age = state.age++;
      const bool young = age < kLookAgain;
      // Each process has its own turn, so that many of them do not fall together.
      const bool turn = young ? age == 0 || std::has_single_bit(age)
                              : (age + static_cast<unsigned>(process.pid)) % kLookAgain == 0;
      if (turn) look(process.pid, state, sink);
    });
  }

  std::string remark() const override {
    if (refused_ == 0) return {};
    return fmt::format(
        "the environment of {} processes of other users is not permitted to read: run as root",
        refused_);
  }

 private:
  static constexpr unsigned kLookAgain = 40;  // ticks

  struct State {
    unsigned age = 0;
    bool refused = false;
    std::string env, tracer, affinity, limits;
  };

  void look(int pid, State& state, SampleSink& sink) {
    const auto tell = [&](std::string_view key, std::string& last, std::string now) {
      if (now == last) return;
      sink.note(pid, key, now);
      last = std::move(now);
    };
    const std::string folder = fmt::format("/proc/{}/", pid);
    if (const auto environ = host_.read(folder + "environ")) {
      tell("env", state.env, environment_json(*environ));
    } else if (!state.refused && host_.exists(folder + "environ")) {
      state.refused = true;
      ++refused_;
    }
    if (const auto status = host_.read(folder + "status")) {
      const auto tracer = keyed(*status, "TracerPid");
      // Nobody traces most processes: that is not worth a note, but that a tracer left is.
      if (tracer && (*tracer > 0 || !state.tracer.empty()))
        tell("tracer", state.tracer, std::to_string(*tracer));
      for (Lines lines(*status); auto line = lines.next();) {
        Words words(*line);
        if (words.next() == "Cpus_allowed_list:")
          tell("affinity", state.affinity, std::string(words.next()));
      }
    }
    if (const auto limits = host_.read(folder + "limits"))
      tell("limits", state.limits, limits_json(*limits));
  }

  const os::HostRoot& host_;
  PerProcess<State> table_;
  std::int64_t refused_ = 0;
};

}  // namespace

extern const SamplerPart kProcEnv = {
    .name = "proc.env",
    .what =
        "environment variables about threads and debugging, tracers, affinity and limits of each "
        "process",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ProcEnv>(context);
    },
};

}  // namespace bedplate::probe
