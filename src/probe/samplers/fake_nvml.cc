// A stand-in for libnvidia-ml.so.1 with two GPUs. FAKE_NVML in the environment says how it behaves:
//   (unset)      answers
//   no_driver    nvmlInit fails as without the kernel module
//   block_init   nvmlInit never returns
//   block_later  the third reading never returns, as that of a dying GPU
//   die_later    the third reading kills the process
//   lose_later   from the third reading on, GPU 1 has fallen off the bus
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

unsigned readings = 0;

bool mode(const char* name) {
  const char* wanted = getenv("FAKE_NVML");
  return wanted != nullptr && strcmp(wanted, name) == 0;
}

uintptr_t number(void* device) { return reinterpret_cast<uintptr_t>(device); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  while (mode("block_init")) pause();
  return mode("no_driver") ? 9 : 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  ++readings;
  while (readings >= 3 && mode("block_later")) pause();
  if (readings >= 3 && mode("die_later")) raise(SIGSEGV);
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index == 1 && readings >= 3 && mode("lose_later")) return 15;
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return 0;
}

struct Utilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void* device, struct Utilization* use) {
  use->gpu = 30 + static_cast<unsigned>(number(device));
  use->memory = 5;
  return 0;
}

struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* device, struct Memory* memory) {
  (void)device;
  memory->total = 80ULL << 30;
  memory->used = 60ULL << 30;
  memory->free = 20ULL << 30;
  return 0;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  (void)device;
  *milliwatts = 350123;
  return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  (void)device;
  *milliwatts = 700000;
  return 0;
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  (void)device;
  *mhz = type == 1 ? 1980 : 0;
  return 0;
}

int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  (void)sensor;
  if (number(device) == 2) return 3;  // not supported
  *celsius = 71;
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  (void)device;
  *reasons = 0x24;
  return 0;
}

int nvmlDeviceGetPcieReplayCounter(void* device, unsigned* replays) {
  *replays = number(device) == 1 ? 7 : 10 - readings;  // the second one falls
  return 0;
}

}  // extern "C"
