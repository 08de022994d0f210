#include "host/draw.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/text.h"

namespace bedplate::host {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two packages of 56 cores with two threads each, as large as such machines get today.
Host large_host() {
  Host host;
  host.system.hostname = "large";
  host.cpu.model = "Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz";
  host.cpu.packages = 2;
  host.cpu.cores = 112;
  host.cpu.threads = 224;
  CacheKind l3{.level = 3, .type = "unified", .bytes = 105 * kMiB, .shared_by = {}};
  for (int package = 0; package < 2; ++package) {
    NumaNode node{.id = package};
    for (int thread = 0; thread < 2; ++thread) {
      for (int core = 0; core < 56; ++core) {
        const int id = thread * 112 + package * 56 + core;
        host.cpu.online.push_back(id);
        node.cpus.push_back(id);
        host.cpu.logical.push_back(
            {.id = id, .package = package, .die = 0, .core = package * 56 + core, .node = package});
      }
    }
    l3.shared_by.push_back(node.cpus);
    host.nodes.push_back(std::move(node));
  }
  std::sort(host.cpu.online.begin(), host.cpu.online.end());
  host.cpu.caches.push_back(std::move(l3));
  for (int i = 0; i < 8; ++i) {
    Gpu gpu{.index = i, .compute = true, .vendor = "NVIDIA", .model = "H100 <SXM5> & \"80GB\""};
    gpu.pci.address = "0000:" + std::to_string(10 + i) + ":00.0";
    gpu.pci.numa_node = i / 4;
    gpu.pci.driver = "nvidia";
    host.gpus.push_back(std::move(gpu));
  }
  return host;
}

void expect_width(const std::string& text, std::size_t columns) {
  for (const auto line : split(std::string_view(text).substr(0, text.size() - 1), '\n')) {
    EXPECT_EQ(display_width(line), columns) << line;
  }
}

TEST(DrawText, KeepsTheWidthItIsGiven) {
  const Host host = large_host();
  for (const int columns : {60, 80, 100, 140}) {
    expect_width(draw_text(host, {}, {.columns = columns}), static_cast<std::size_t>(columns));
  }
  expect_width(draw_text(host, {}, {.columns = 10}), 60);
}

TEST(DrawText, AsciiIsAscii) {
  const Mark mark{"gpu/1", MarkLevel::kWarning, "slow · really"};
  const std::string text =
      draw_text(large_host(), {&mark, 1}, {.columns = 100, .charset = Charset::kAscii});
  EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                          [](unsigned char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); }));
  expect_width(text, 100);
}

TEST(DrawText, AMarkStandsUnderItsDeviceAndNoneIsLost) {
  const Mark marks[] = {{"gpu/2", MarkLevel::kFault, "runs at x1"},
                        {"node/1", MarkLevel::kNote, "little memory"},
                        {"mount//data", MarkLevel::kWarning, "nearly full"}};
  const std::string text = draw_text(large_host(), marks);
  const auto gpu2 = text.find("GPU2"), gpu3 = text.find("GPU3"),
             mark = text.find("FAULT: runs at x1");
  ASSERT_NE(mark, std::string::npos);
  EXPECT_LT(gpu2, mark);
  EXPECT_LT(mark, gpu3);
  EXPECT_LT(text.find("NUMA node 1"), text.find("note: little memory"));
  EXPECT_THAT(text, HasSubstr("WARNING: /data: nearly full"));
}

TEST(DrawText, SaysWhichCpusAreThisProcesss) {
  Host host = large_host();
  host.cpu.allowed = {0, 1, 2, 3};
  const std::string text = draw_text(host);
  EXPECT_THAT(text, HasSubstr("this process: 0-3"));
  EXPECT_THAT(text, HasSubstr("this process: none"));
}

// Tags are closed in the order in which they were opened, and no bare & or < stands in a text.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const auto end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find(' '));
    if (name[0] != '/') {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  for (std::size_t at = svg.find('&'); at != std::string::npos; at = svg.find('&', at + 1)) {
    const auto entity = svg.substr(at, svg.find(';', at) - at + 1);
    EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;")
        << entity;
  }
}

TEST(DrawSvg, IsWellFormedWhateverTheNames) {
  const Mark mark{"gpu/1", MarkLevel::kWarning, "<script>alert(1)</script>"};
  for (const int width : {320, 360, 920, 1400}) {
    const std::string svg = draw_svg(large_host(), {&mark, 1}, {.width = width});
    expect_well_formed(svg);
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, HasSubstr("H100 &lt;SXM5&gt;"));
  }
}

TEST(DrawSvg, HasASquareForEachCore) {
  Host host = large_host();
  const auto squares = [](const std::string& svg, const std::string& kind) {
    std::size_t n = 0;
    const std::string tag = "<rect class=\"" + kind + "\"";
    for (auto at = svg.find(tag); at != std::string::npos; at = svg.find(tag, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(squares(draw_svg(host), "a"), 112u);
  host.cpu.allowed = {0, 1, 2, 112};  // 112 is the sibling of 0
  EXPECT_EQ(squares(draw_svg(host), "a"), 3u);
  EXPECT_EQ(squares(draw_svg(host), "e"), 109u);
}

TEST(DrawFigure, HoldsAWideAndANarrowDrawing) {
  const std::string html = draw_figure(large_host());
  EXPECT_THAT(html, HasSubstr("viewBox=\"0 0 920"));
  EXPECT_THAT(html, HasSubstr("viewBox=\"0 0 360"));
  EXPECT_THAT(html, HasSubstr("@media(max-width:700px)"));
  expect_well_formed(html);
}

}  // namespace
}  // namespace bedplate::host
