// NVIDIA GPUs: use, memory, power, clock, temperature, throttle reasons, PCIe replays. See
// probe/internal/nvml.h.
#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "probe/internal/helper_process.h"
#include "probe/internal/nvml.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

enum Value {
  kUtilization,
  kMemoryUsed,
  kMemoryTotal,
  kPower,
  kPowerLimit,
  kSmClock,
  kTemperature,
  kThrottleReasons,
  kPcieReplays,
  kValues
};
constexpr std::array<std::string_view, kValues> kMetrics = {
    "utilization_pct", "memory_used_bytes", "memory_total_bytes", "power_mw",    "power_limit_mw",
    "sm_clock_mhz",    "temperature_c",     "throttle_reasons",   "pcie_replays"};

constexpr std::uint32_t kMostGpus = 64;

// What the child answers. Fixed in size, and both ends are the same program.
struct GpuAnswer {
  std::array<std::int64_t, kValues> values{};
  std::uint32_t valid = 0;  // bit i: values[i] was given
  std::int32_t lost = 0;    // the driver says that this GPU has fallen off the bus
};
struct Answer {
  enum Status : std::int32_t { kReading, kNoLibrary, kNoDriver };
  Status status = kReading;
  std::int32_t error = 0;  // of NVML
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  std::array<GpuAnswer, kMostGpus> gpus;
};

// The few entry points, as NVML declares them; an nvmlReturn_t is an int, 0 for success.
class Library {
 public:
  static constexpr int kGpuIsLost = 15;
  static constexpr int kSmClockType = 1;
  static constexpr int kGpuSensor = 0;

  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) return;
    load(init_, {"nvmlInit_v2", "nvmlInit"});
    load(count_, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    load(device_, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    load(utilization_, {"nvmlDeviceGetUtilizationRates"});
    load(memory_, {"nvmlDeviceGetMemoryInfo"});
    load(power_, {"nvmlDeviceGetPowerUsage"});
    load(power_limit_, {"nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"});
    load(clock_, {"nvmlDeviceGetClockInfo"});
    load(temperature_, {"nvmlDeviceGetTemperature"});
    load(reasons_,
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    load(replays_, {"nvmlDeviceGetPcieReplayCounter"});
  }

  bool loaded() const { return handle_ && init_ && count_ && device_; }
  int init() const { return init_(); }

  void read(Answer& answer) const {
    answer.error = count_(&answer.count);
    if (answer.error != 0) answer.count = 0;
    answer.count = std::min(answer.count, kMostGpus);
    for (std::uint32_t i = 0; i < answer.count; ++i) {
      GpuAnswer& gpu = answer.gpus[i];
      void* device = nullptr;
      const int error = device_(i, &device);
      gpu.lost = error == kGpuIsLost ? 1 : 0;
      if (error == 0) read_gpu(device, gpu);
    }
  }

 private:
  template <typename Function>
  void load(Function& into, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!into) into = std::bit_cast<Function>(::dlsym(handle_, name));
    }
  }

  static void take(GpuAnswer& gpu, Value value, int error, std::uint64_t number) {
    if (error == kGpuIsLost) gpu.lost = 1;
    if (error != 0 || number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return;
    gpu.values[value] = static_cast<std::int64_t>(number);
    gpu.valid |= 1u << value;
  }

  void read_gpu(void* device, GpuAnswer& gpu) const {
    // The call stands apart from the use of what it fills: arguments have no order.
    const auto single = [&](Value value, int (*function)(void*, unsigned*)) {
      if (!function) return;
      unsigned number = 0;
      const int error = function(device, &number);
      take(gpu, value, error, number);
    };
    single(kPower, power_);
    single(kPowerLimit, power_limit_);
    single(kPcieReplays, replays_);
    const auto typed = [&](Value value, int (*function)(void*, int, unsigned*), int type) {
      if (!function) return;
      unsigned number = 0;
      const int error = function(device, type, &number);
      take(gpu, value, error, number);
    };
    typed(kSmClock, clock_, kSmClockType);
    typed(kTemperature, temperature_, kGpuSensor);
    if (utilization_) {
      Utilization use{};
      const int error = utilization_(device, &use);
      take(gpu, kUtilization, error, use.gpu);
    }
    if (memory_) {
      Memory memory{};
      const int error = memory_(device, &memory);
      take(gpu, kMemoryUsed, error, memory.used);
      take(gpu, kMemoryTotal, error, memory.total);
    }
    if (reasons_) {
      unsigned long long bits = 0;
      const int error = reasons_(device, &bits);
      take(gpu, kThrottleReasons, error, bits);
    }
  }

  struct Utilization {
    unsigned gpu, memory;
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  void* handle_;
  int (*init_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, void**) = nullptr;
  int (*utilization_)(void*, Utilization*) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*power_limit_)(void*, unsigned*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*temperature_)(void*, int, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  int (*replays_)(void*, unsigned*) = nullptr;
};

// In the child: one answer at the start, then one for each message.
void serve(int socket, const std::string& library_name) {
  const auto send = [&](const Answer& answer) {
    return ::send(socket, &answer, sizeof answer, MSG_NOSIGNAL) > 0;
  };
  const auto answer = std::make_unique<Answer>();
  const Library library(library_name);
  if (!library.loaded()) {
    answer->status = Answer::kNoLibrary;
    send(*answer);
    return;
  }
  answer->error = library.init();
  if (answer->error != 0) {
    answer->status = Answer::kNoDriver;
    send(*answer);
    return;
  }
  char question = 0;
  do {
    *answer = Answer{};
    library.read(*answer);
  } while (send(*answer) && ::recv(socket, &question, 1, 0) > 0);
}

class GpuNvml final : public Sampler {
 public:
  explicit GpuNvml(const NvmlOptions& options)
      : options_(options),
        answer_(std::make_unique<Answer>()),
        helper_("bedplate-nvml", [&options](int socket) { serve(socket, options.library); }),
        asked_at_(real_clock().now()) {
    answered_ = receive(options.wait_at_open);
    if (!answered_) {
      if (helper_.ended())
        throw Error(Code::kUnavailable,
                    "the NVIDIA driver's library ended the process that asked it");
      return;  // the driver wakes its GPUs: the answer may come later
    }
    if (answer_->status == Answer::kNoLibrary) {
      throw Error(Code::kUnsupported, "no NVIDIA driver: {} was not found", options.library);
    }
    refuse_without_driver();
    if (answer_->count == 0) throw Error(Code::kUnsupported, "the NVIDIA driver sees no GPU");
  }

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    if (!why_.empty()) return;
    if (!answered_) answered_ = receive(0);
    if (answered_) {
      if (answer_->status != Answer::kReading) {
        why_ = fmt::format("the NVIDIA driver does not answer (NVML error {})", answer_->error);
        return;
      }
      write(sink);
      ever_ = true;
      answered_ = false;
      const std::byte question{'?'};
      asked_at_ = real_clock().now();
      helper_.send({&question, 1});
    }
    if (helper_.ended()) {
      why_ =
          "the NVIDIA driver's library ended the process that asked it: no readings from then on";
      return;
    }
    const Nanos limit = ever_ ? options_.answer_within : options_.first_answer_within;
    const Nanos waited = real_clock().now() - asked_at_;
    if (waited > limit) {
      why_ = fmt::format("blocked: the NVIDIA driver did not answer in {} s (a GPU may be dying)",
                         seconds(waited));
      helper_.kill();
    }
  }

  std::string remark() const override { return why_; }

 private:
  bool receive(Nanos within) {
    const auto n = helper_.receive(std::as_writable_bytes(std::span(answer_.get(), 1)), within);
    return n && *n == sizeof(Answer);
  }

  void refuse_without_driver() const {
    if (answer_->status != Answer::kNoDriver) return;
    constexpr int kNoPermission = 4, kDriverNotLoaded = 9;
    if (answer_->error == kNoPermission) {
      throw Error(Code::kPermission,
                  "not permitted to ask the NVIDIA driver: run as root, or as a user that may use "
                  "/dev/nvidia*");
    }
    if (answer_->error == kDriverNotLoaded)
      throw Error(Code::kUnsupported, "no NVIDIA driver: its kernel module is not loaded");
    throw Error(Code::kUnavailable, "the NVIDIA driver does not answer (NVML error {})",
                answer_->error);
  }

  void write(SampleSink& sink) {
    if (gpus_.size() < answer_->count) gpus_.resize(answer_->count);
    for (std::uint32_t i = 0; i < answer_->count; ++i) {
      Gpu& gpu = gpus_[i];
      const GpuAnswer& now = answer_->gpus[i];
      if (gpu.subject.empty()) gpu.subject = fmt::format("gpu/{}", i);
      if (now.lost != 0 && !gpu.told_lost) {
        gpu.told_lost = true;
        sink.note(0, "gpu_lost", std::to_string(i));
      }
      for (int value = 0; value < kValues; ++value) {
        if ((now.valid & (1u << value)) == 0) continue;
        if (value == kPcieReplays) {
          const auto replays = gpu.replays.update(now.values[value], Rising::Fall::kReplaced);
          sink.counter(gpu.subject, kMetrics[value], replays, "NVML");
        } else {
          sink.gauge(gpu.subject, kMetrics[value], now.values[value], "NVML");
        }
      }
    }
  }

  struct Gpu {
    std::string subject;
    Rising replays;
    bool told_lost = false;
  };

  NvmlOptions options_;
  std::unique_ptr<Answer> answer_;
  HelperProcess helper_;
  Nanos asked_at_;
  bool answered_ = false;
  bool ever_ = false;
  std::vector<Gpu> gpus_;
  std::string why_;  // set once no reading will come any more
};

}  // namespace

std::unique_ptr<Sampler> open_nvml(const NvmlOptions& options) {
  return std::make_unique<GpuNvml>(options);
}

extern const SamplerPart kGpuNvml = {
    .name = "gpu.nvml",
    .what = "NVIDIA GPUs: use, memory, power, clock, temperature, reasons for throttling",
    .every = 2,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      if (!context.host.live())
        throw Error(Code::kUnsupported, "a recorded machine has no GPU to ask");
      return open_nvml({});
    },
};

}  // namespace bedplate::probe
