// One picture of the machine: machine → packages and NUMA nodes → caches and cores, with GPUs, NICs
// and disks under their node.
//
//   fmt::print("{}", draw_text(here));                                  // a terminal, 100 columns
//   const Mark bad{"gpu/3", MarkLevel::kWarning, "runs at x8 of x16"};
//   html += draw_figure(here, {&bad, 1});                               // a page: wide and phone
//   layout, light and dark write_output("host.svg", draw_svg(here, {&bad, 1}));                // a
//   file of its own
//
// A mark is drawn at its subject and says why; subjects are "node/0", "gpu/0", "net/eth0" (also
// finds the RDMA device on that interface), "rdma/mlx5_0", "disk/vda", "mount//data". A mark whose
// subject is not in the picture is listed at its end, so none is lost. Devices whose node is
// unknown stand in a box of their own, unless there is but one node. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "host/host.h"

namespace bedplate::host {

enum class MarkLevel : std::uint8_t { kNote, kWarning, kFault };

struct Mark {
  std::string subject;
  MarkLevel level = MarkLevel::kWarning;
  std::string text;
};

enum class Charset : std::uint8_t { kUnicode, kAscii };

struct TextOptions {
  int columns = 100;  // at least 60
  Charset charset = Charset::kUnicode;
};

// Ends with a line end.
std::string draw_text(const Host& host, std::span<const Mark> marks = {},
                      const TextOptions& options = {});

struct SvgOptions {
  int width = 920;  // of the layout, in pixels at scale 1; at least 320
};

// One <svg> element which scales to the width it is given. Its colours follow the reader's light or
// dark scheme.
std::string draw_svg(const Host& host, std::span<const Mark> marks = {},
                     const SvgOptions& options = {});

// For an HTML page: a <div> with a wide and a narrow drawing, of which the page's width shows one.
// Needs no script.
std::string draw_figure(const Host& host, std::span<const Mark> marks = {});

}  // namespace bedplate::host
