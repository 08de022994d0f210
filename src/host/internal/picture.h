// What both drawings show, arranged but not yet drawn.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/draw.h"

namespace bedplate::host {

struct PictureDevice {
  enum class Kind : std::uint8_t { kGpu, kNetwork, kDisk };
  Kind kind = Kind::kGpu;
  std::string title;   // "GPU0 NVIDIA H100 80GB HBM3"
  std::string detail;  // "79.6 GiB · PCIe 5.0 x16"
  std::vector<const Mark*> marks;
};

// Devices behind one PCIe switch (or one card), which reach each other without passing the
// processor; often just one device.
struct PictureGroup {
  std::vector<PictureDevice> devices;
};

// The CPUs under one last-level cache.
struct PictureDomain {
  std::string cache;  // "L3 32 MiB"; empty: caches are not told
  std::vector<int> cpus;
  int cores = 0;          // 0: not told
  int allowed_cores = 0;  // of them, those this process may use
};

struct PictureNode {
  std::string title;  // "NUMA node 0 · 126 GiB, 99 GiB free"
  std::string cpus;   // "CPUs 0-7: 8 cores"; empty: memory only
  std::string inner;  // "a core: L2 1 MiB, L1d 32 KiB"
  std::vector<PictureDomain> domains;
  std::vector<PictureGroup> groups;
  std::vector<const Mark*> marks;
};

struct PicturePackage {
  std::string title;  // empty: no box of its own, its node's box says it all
  std::vector<PictureNode> nodes;
};

struct PictureFact {
  std::string label;               // "memory"
  std::vector<std::string> lines;  // to be wrapped
};

struct Picture {
  std::string title;                   // "dgx-h100 · NVIDIA DGXH100"
  std::vector<std::string> headlines;  // processors, memory
  std::vector<PicturePackage> packages;
  std::vector<PictureGroup> unplaced;  // devices whose node is not known
  std::vector<PictureFact> facts;
  std::vector<Mark> unplaced_marks;  // their text names the subject
};

std::vector<const Mark*> pointers(const std::vector<Mark>& marks);

// `marks` must outlive the picture.
Picture arrange(const Host& host, std::span<const Mark> marks);

std::vector<PictureFact> facts_of(const Host& host);  // internal/facts.cc

}  // namespace bedplate::host
