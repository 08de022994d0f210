// The recorded and hand-made machines of tests/hosts: what is read of each, byte for byte, and the
// facts that matter by name.
#include "host/host.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "host/draw.h"
#include "host/host_json.h"
#include "host/recorded.h"
#include "os/test_folder.h"

namespace bedplate::host {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const fs::path kTrees = fs::path(BEDPLATE_SOURCE_DIR) / "tests/hosts";
const fs::path kGolden = fs::path(BEDPLATE_SOURCE_DIR) / "tests/golden/hosts";

Host tree(const char* name) { return describe(os::HostRoot(kTrees / name)); }

// With BEDPLATE_UPDATE_GOLDEN set in the environment the file is written instead of compared.
void expect_golden(const std::string& text, const fs::path& file) {
  if (std::getenv("BEDPLATE_UPDATE_GOLDEN") != nullptr) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return;
  }
  std::ifstream in(file, std::ios::binary);
  ASSERT_TRUE(in) << file
                  << " is missing: run with BEDPLATE_UPDATE_GOLDEN=1 and read the difference";
  std::stringstream expected;
  expected << in.rdbuf();
  EXPECT_EQ(text, expected.str()) << file;
}

class Machine : public ::testing::TestWithParam<const char*> {};

TEST_P(Machine, IsDescribedAsItsGoldenFilesSay) {
  const Host host = tree(GetParam());
  expect_golden(to_json(host) + "\n", kGolden / (std::string(GetParam()) + ".json"));
  expect_golden(draw_text(host), kGolden / (std::string(GetParam()) + ".txt"));
}

TEST_P(Machine, SurvivesJsonUnchanged) {
  const std::string text = to_json(tree(GetParam()));
  EXPECT_EQ(to_json(from_json(text)), text);
}

TEST_P(Machine, SaysWhereItComesFrom) {
  std::ifstream in(kTrees / GetParam() / "README.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(text.str().find("hand-made") != std::string::npos ||
              text.str().find("recorded for real") != std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Trees, Machine,
                         ::testing::Values("broken", "container", "dgx-h100", "epyc-nps4", "roce",
                                           "vm-2cpu"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Describe, EveryGpuOfADgxHasItsAdapterBehindTheSameSwitch) {
  const Host host = tree("dgx-h100");
  std::vector<const Gpu*> gpus;
  for (const auto& gpu : host.gpus) {
    if (gpu.compute) gpus.push_back(&gpu);
  }
  ASSERT_THAT(gpus, SizeIs(8));
  ASSERT_THAT(host.rdma, SizeIs(8));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(gpus[i]->index, static_cast<int>(i));
    EXPECT_EQ(gpus[i]->model, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(gpus[i]->memory_bytes, 81559 * kMiB);
    EXPECT_EQ(gpus[i]->pci.numa_node, i < 4 ? 0 : 1);
    for (std::size_t k = 0; k < 8; ++k) {
      const auto expected = i == k               ? PciDistance::kSameSwitch
                            : (i < 4) == (k < 4) ? PciDistance::kSameNode
                                                 : PciDistance::kAcrossNodes;
      EXPECT_EQ(pci_distance(gpus[i]->pci, host.rdma[k].pci), expected) << i << " " << k;
    }
  }
  EXPECT_EQ(host.rdma[6].name, "mlx5_10");  // after mlx5_9
  EXPECT_EQ(host.rdma[0].ports.at(0).rate_gbps, 400);
}

TEST(Describe, AsmallDisplayIsNoGpuToComputeOn) {
  const Host host = tree("dgx-h100");
  EXPECT_EQ(host.gpus[0].vendor, "ASPEED");
  EXPECT_FALSE(host.gpus[0].compute);
  EXPECT_EQ(host.gpus[0].index, -1);
}

TEST(Describe, CountsCoresNotThreads) {
  const Host host = tree("epyc-nps4");
  EXPECT_EQ(host.cpu.packages, 1);
  EXPECT_EQ(host.cpu.cores, 16);
  EXPECT_EQ(host.cpu.threads, 32);
  EXPECT_EQ(host.cpu.smt, true);
  ASSERT_THAT(host.nodes, SizeIs(4));
  EXPECT_THAT(host.nodes[1].cpus, ElementsAre(4, 5, 6, 7, 20, 21, 22, 23));
  EXPECT_THAT(host.nodes[1].distances, ElementsAre(12, 10, 12, 12));
  const auto& l3 = host.cpu.caches.back();
  EXPECT_EQ(l3.bytes, 32 * kMiB);
  EXPECT_THAT(l3.shared_by, SizeIs(8));
}

TEST(Describe, AnUnknownNodeIsNotNodeZero) {
  const Host host = tree("epyc-nps4");
  EXPECT_EQ(host.gpus[0].pci.numa_node, 0);
  EXPECT_EQ(host.gpus[3].pci.numa_node, std::nullopt);
  EXPECT_THAT(draw_text(host), HasSubstr("node unknown"));
}

TEST(Describe, TheLesserEndBoundsALink) {
  const Host host = tree("epyc-nps4");
  const auto& in_a_small_slot = host.gpus[1].pci;
  EXPECT_EQ(in_a_small_slot.link.max_width, 16);
  EXPECT_EQ(best_link(in_a_small_slot).width, 8);
  EXPECT_EQ(link_text(16.0, 8), "PCIe 4.0 x8");
  EXPECT_EQ(link_text(std::nullopt, 4), "x4");
  EXPECT_EQ(link_text(7.0, std::nullopt), "PCIe at 7 GT/s");
}

TEST(Describe, AContainerKnowsItsBounds) {
  const Host host = tree("container");
  EXPECT_EQ(host.cgroup.version, "v2");
  EXPECT_EQ(host.cgroup.cpu_quota, 2.5);
  EXPECT_EQ(host.cgroup.cpu_unlimited, false);
  EXPECT_THAT(host.cgroup.cpuset, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(host.cgroup.memory_bytes, 8 * kGiB);
  EXPECT_EQ(host.cgroup.pids, kUnlimited);
  EXPECT_EQ(host.system.container, "docker");
  EXPECT_EQ(host.system.hypervisor, "KVM");
  ASSERT_THAT(host.mounts, SizeIs(3));  // no /etc/hosts, no /dev
  EXPECT_EQ(host.mounts[2].point, "/dev/shm");
  EXPECT_EQ(host.mounts[2].bytes, 64 * kMiB);
  EXPECT_THAT(host.mounts[0].options, Each(Not(HasSubstr("lowerdir"))));
  EXPECT_THAT(host.mounts[1].options, Not(Contains("rw")));  // /data is mounted read-only
  EXPECT_EQ(host.nics[1].kind, "veth");
}

TEST(Describe, RoceAddressesAreToldByTypeAndKind) {
  const Host host = tree("roce");
  ASSERT_THAT(host.rdma, SizeIs(2));
  const auto& port = host.rdma[0].ports.at(0);
  ASSERT_THAT(port.gids, SizeIs(4));  // the empty fifth is left out
  EXPECT_EQ(port.gids[3].type, "RoCE v2");
  EXPECT_EQ(port.gids[3].address, "IPv4");
  EXPECT_EQ(host.nics[1].rdma, "mlx5_0");
  EXPECT_EQ(host.nics[2].speed_mbps, std::nullopt);  // -1 while the link is down
  EXPECT_EQ(host.gpus[0].memory_bytes, 68702699520);
  EXPECT_EQ(host.cgroup.memory_bytes, 128 * kGiB);
  EXPECT_EQ(host.limits.open_files->hard, 262144);
  EXPECT_EQ(host.mounts[0].disk, "nvme0n1");
}

TEST(Describe, GarbageBecomesNothingNeverAFigure) {
  const Host host = tree("broken");
  EXPECT_EQ(host.memory.total_bytes, std::nullopt);
  EXPECT_EQ(host.memory.swap_bytes, std::nullopt);
  EXPECT_THAT(host.memory.swaps, IsEmpty());
  EXPECT_THAT(host.cpu.caches, IsEmpty());
  EXPECT_THAT(host.cpu.online, ElementsAre(3));
  EXPECT_EQ(host.cpu.cores, std::nullopt);
  EXPECT_EQ(host.nodes.at(0).memory_bytes, std::nullopt);
  EXPECT_EQ(host.gpus.at(0).pci.link.width, std::nullopt);  // 63 lanes: a dead device
  EXPECT_EQ(host.nics.at(0).speed_mbps, std::nullopt);
  EXPECT_EQ(host.nics.at(0).mtu, std::nullopt);
  EXPECT_EQ(host.disks.at(0).bytes, std::nullopt);
  EXPECT_EQ(host.disks.at(0).read_ahead_kib, std::nullopt);
  EXPECT_EQ(host.limits.open_files, std::nullopt);
  EXPECT_THAT(host.mounts.at(0).options, Contains("password=***"));
}

TEST(Describe, AnEmptyFolderIsAMachineThatTellsNothing) {
  const os::TestFolder folder;
  const Host host = describe(os::HostRoot(folder.path()));
  EXPECT_EQ(host.cpu.threads, 0);
  EXPECT_EQ(host.cpu.packages, std::nullopt);
  EXPECT_EQ(host.system.psi, std::nullopt);
  EXPECT_EQ(host.cgroup.version, "none");
  EXPECT_THAT(host.nodes, IsEmpty());
  EXPECT_THAT(draw_text(host), HasSubstr("processor model n/a"));
}

TEST(Describe, ThisMachineNow) {
  const Host host = describe(os::HostRoot());
  EXPECT_GE(host.cpu.threads, 1);
  EXPECT_FALSE(host.cpu.allowed.empty());
  EXPECT_GT(host.memory.total_bytes.value_or(0), 0);
  EXPECT_FALSE(host.system.kernel.empty());
  EXPECT_TRUE(host.limits.open_files.has_value());
  EXPECT_FALSE(host.mounts.empty());
  const std::string text = to_json(host);
  EXPECT_EQ(to_json(from_json(text)), text);
}

TEST(HostJson, WhatIsNotAHostIsRefused) {
  const auto code = [](std::string_view text) {
    try {
      from_json(text);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kInternal;
  };
  EXPECT_EQ(code("{"), Code::kCorrupt);
  EXPECT_EQ(code("[]"), Code::kCorrupt);
  EXPECT_EQ(code(R"({"cpu": {"threads": "two"}})"), Code::kCorrupt);
  EXPECT_EQ(code(R"({"cpu": {"online": "3-1"}})"), Code::kCorrupt);
  EXPECT_EQ(code(R"({"schema": 2})"), Code::kUnsupported);
}

TEST(HostJson, MissingAndUnknownNamesArePassedOver) {
  const Host host =
      from_json(R"({"schema": 1, "later": [1], "cpu": {"threads": 7, "colour": "red"}})");
  EXPECT_EQ(host.cpu.threads, 7);
  EXPECT_EQ(host.memory.total_bytes, std::nullopt);
}

TEST(HostJson, UnlimitedIsAWord) {
  Host host;
  host.limits.locked_memory_bytes = Limit{.soft = 65536, .hard = kUnlimited};
  const std::string text = to_json(host);
  EXPECT_THAT(text, HasSubstr("\"hard\": \"unlimited\""));
  EXPECT_EQ(from_json(text).limits.locked_memory_bytes->hard, kUnlimited);
}

TEST(OpenMachine, NamesWhatIsWrongWithThePath) {
  const os::TestFolder folder;
  const auto message = [](const std::string& from) -> std::string {
    try {
      open_machine(from);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("/no/such/folder"), HasSubstr("does not exist"));
  EXPECT_THAT(message(folder.path().string()), HasSubstr("neither proc/ nor sys/"));
  std::ofstream(folder.path() / "packed.tar") << "x";
  EXPECT_THAT(message((folder.path() / "packed.tar").string()), HasSubstr("unpack it first"));
  fs::create_directories(folder.path() / "t0000/proc");
  EXPECT_EQ(open_machine(folder.path().string()).root(), folder.path() / "t0000");
  EXPECT_TRUE(open_machine("").live());
}

}  // namespace
}  // namespace bedplate::host
