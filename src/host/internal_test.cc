// The small parts: texts and numbers of files, sizes behind a deadline, order of names, distances.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/clock.h"
#include "host/host.h"
#include "host/internal/describers.h"
#include "host/internal/file_system_size.h"
#include "host/internal/natural_order.h"
#include "host/internal/read.h"
#include "host/internal/words.h"
#include "os/test_folder.h"
#include "os/unique_fd.h"

namespace bedplate::host {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tidy, IsOneShortLineThatNoTerminalObeys) {
  EXPECT_EQ(tidy("  a\tb  \nsecond\n"), "a b");
  EXPECT_EQ(tidy("\x1b[31m"), "\xEF\xBF\xBD[31m");
  EXPECT_EQ(tidy("\xc2\x9b"
                 "31m"),
            "\xEF\xBF\xBD"
            "31m");
  EXPECT_EQ(tidy("a\xe2\x80\xae"
                 "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_LE(tidy(std::string(100000, 'x')).size(), 256u);
  EXPECT_EQ(tidy(std::string(255, 'x') + "é"), std::string(255, 'x') + "\xEF\xBF\xBD");
}

TEST(Amount, RefusesWhatIsNone) {
  EXPECT_EQ(to_amount(" 12\n"), 12);
  EXPECT_EQ(to_amount("-1"), std::nullopt);
  EXPECT_EQ(to_amount("max"), std::nullopt);
  EXPECT_EQ(to_amount("99999999999999999999"), std::nullopt);
  EXPECT_EQ(times(9223372036854775807, 1024), std::nullopt);
  EXPECT_EQ(times(3, 1024), 3072);
  EXPECT_EQ(times(std::nullopt, 1024), std::nullopt);
}

TEST(Chosen, IsTheWordInBrackets) {
  EXPECT_EQ(chosen("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen("none"), "none");
  EXPECT_EQ(chosen("]odd["), "]odd[");
}

TEST(PciAddress, IsRecognised) {
  EXPECT_TRUE(is_pci_address("0000:1b:00.0"));
  EXPECT_TRUE(is_pci_address("10000:01:00.1"));  // a VMD domain
  EXPECT_FALSE(is_pci_address("pci0000:00"));
  EXPECT_FALSE(is_pci_address("0000:1b:00"));
  EXPECT_FALSE(is_pci_address("0000:1B:00.0"));
  EXPECT_EQ(pci_address_in("../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0"),
            "0000:00:03.0");
  EXPECT_EQ(pci_address_in("../../devices/virtual/net/lo"), "");
}

PciDevice device(std::vector<std::string> bridges, std::optional<int> node) {
  static int number = 0;
  PciDevice made;
  made.address = fmt::format("0000:{:02x}:00.0", ++number);
  made.bridges = std::move(bridges);
  made.numa_node = node;
  return made;
}

TEST(PciDistance, FollowsTheBridges) {
  const auto gpu = device({"pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:01.0"}, 0);
  const auto same_switch =
      device({"pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0"}, 0);
  const auto two_switches = device({"pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:02.0",
                                    "0000:19:00.0", "0000:1a:00.0"},
                                   0);
  const auto same_root = device({"pci0000:15", "0000:15:03.0"}, 0);
  const auto same_node = device({"pci0000:29", "0000:29:01.0"}, 0);
  const auto other_node = device({"pci0000:97", "0000:97:01.0"}, 1);
  const auto nowhere = device({}, std::nullopt);
  EXPECT_EQ(pci_distance(gpu, same_switch), PciDistance::kSameSwitch);
  EXPECT_EQ(pci_distance(gpu, two_switches), PciDistance::kSwitches);
  EXPECT_EQ(pci_distance(gpu, same_root), PciDistance::kHostBridge);
  EXPECT_EQ(pci_distance(gpu, same_node), PciDistance::kSameNode);
  EXPECT_EQ(pci_distance(gpu, other_node), PciDistance::kAcrossNodes);
  EXPECT_EQ(pci_distance(gpu, nowhere), std::nullopt);
  EXPECT_EQ(pci_distance(gpu, PciDevice{}), std::nullopt);
  EXPECT_EQ(name(PciDistance::kSwitches), "PXB");
}

TEST(NaturalOrder, ReadsNumbersAsNumbers) {
  struct Named {
    std::string name;
  };
  std::vector<Named> things = {{"mlx5_10"}, {"mlx5_2"}, {"eth0"}, {"mlx5_02"}, {"mlx5_"}};
  sort_naturally(things, &Named::name);
  std::vector<std::string> names;
  for (const auto& thing : things) names.push_back(thing.name);
  EXPECT_THAT(names, ElementsAre("eth0", "mlx5_", "mlx5_02", "mlx5_2", "mlx5_10"));
  EXPECT_FALSE(naturally_less("a1", "a1"));
}

TEST(Words, ModelsAreShortened) {
  EXPECT_EQ(short_model("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"),
            "Intel Xeon Platinum 8375C");
  EXPECT_EQ(short_model("AMD EPYC 9654 96-Core Processor"), "AMD EPYC 9654");
  EXPECT_EQ(speed_text(400000), "400 Gb/s");
  EXPECT_EQ(speed_text(2500), "2.5 Gb/s");
  EXPECT_EQ(speed_text(100), "100 Mb/s");
  EXPECT_THAT(unbreakable("L3 32 MiB · PCIe 5.0 x16, end"),
              ElementsAre("L3", "32 MiB ·", "PCIe 5.0 x16,", "end"));
}

TEST(SizesWithDeadline, AnswersForHealthyPathsAndNamesWhatFails) {
  const std::vector<std::string> paths = {"/", "/no/such/place"};
  const auto answers = sizes_with_deadline(paths, 20 * kSecond);
  ASSERT_EQ(answers.size(), 2u);
  ASSERT_TRUE(answers[0].size.has_value()) << answers[0].why;
  EXPECT_GT(answers[0].size->bytes.value_or(0), 0);
  EXPECT_FALSE(answers[1].size.has_value());
  EXPECT_THAT(answers[1].why, HasSubstr("No such file"));
}

// A FUSE mount whose daemon never says a word: statfs() on it blocks for ever.
class SilentMount {
 public:
  SilentMount() {
    device_ = os::UniqueFd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device_) return;
    const std::string options =
        fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", device_.get());
    mounted_ = ::mount("silent", point().c_str(), "fuse.silent", MS_NOSUID | MS_NODEV,
                       options.c_str()) == 0;
  }
  ~SilentMount() {
    device_.reset();  // wakes whoever waits, with ENOTCONN
    if (mounted_) ::umount2(point().c_str(), MNT_DETACH);
  }
  SilentMount(const SilentMount&) = delete;
  SilentMount& operator=(const SilentMount&) = delete;

  bool mounted() const { return mounted_; }
  std::string point() const { return folder_.path().string(); }

 private:
  os::TestFolder folder_;
  os::UniqueFd device_;
  bool mounted_ = false;
};

TEST(SizesWithDeadline, AFileSystemThatNeverAnswersCostsOnlyTheDeadline) {
  const SilentMount silent;
  if (!silent.mounted())
    GTEST_SKIP() << "needs root and /dev/fuse to mount a file system that hangs";
  const std::vector<std::string> paths = {silent.point(), "/"};
  const Nanos start = real_clock().now();
  const auto answers = sizes_with_deadline(paths, 500 * kMillisecond);
  EXPECT_LT(real_clock().now() - start, 20 * kSecond);
  EXPECT_FALSE(answers[0].size.has_value());
  EXPECT_EQ(answers[0].why, "no answer within 500 ms");
  EXPECT_TRUE(answers[1].size.has_value());
}

TEST(Describe, AHangingMountIsNamedAndTheRestIsThere) {
  const SilentMount silent;
  if (!silent.mounted())
    GTEST_SKIP() << "needs root and /dev/fuse to mount a file system that hangs";
  const Host host = describe(os::HostRoot(), {.mount_deadline = 500 * kMillisecond});
  bool named = false;
  for (const auto& unseen : host.unseen) {
    named = named ||
            (unseen.what == "size of " + silent.point() && unseen.why == "no answer within 500 ms");
  }
  EXPECT_TRUE(named);
  EXPECT_GT(host.memory.total_bytes.value_or(0), 0);
}

}  // namespace
}  // namespace bedplate::host
