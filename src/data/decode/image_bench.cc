// How many pictures a CPU-second decodes: image_bench FOLDER [SIDE [ROUNDS]]
//
// All files of the folder are read into memory first. Each round decodes each of them once with a
// random resized crop to SIDE x SIDE (224) and a mirror of a half, in one thread; printed are the
// median and the extremes of the rounds (5), by the thread's CPU clock.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/decode/image.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

double cpu_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  if (files.empty()) throw Error(Code::kNotFound, "{} holds no files", folder);
  return files;
}

void measure(const std::string& folder, int side, int rounds) {
  const std::vector<std::string> files = files_of(folder);
  const ImageSpec spec{.height = side, .width = side, .fit = Fit::kRandomResizedCrop, .flip = 0.5};
  ImageDecoder decoder;
  std::vector<std::byte> slab(output_bytes(spec) * 64);
  std::vector<double> rates;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    const double start = cpu_seconds();
    for (std::size_t i = 0; i < files.size(); ++i)
      decoder.decode(std::as_bytes(std::span(files[i])), spec,
                     key_of({static_cast<std::uint64_t>(round + 1), i}),
                     std::span(slab).subspan(i % 64 * output_bytes(spec), output_bytes(spec)));
    if (round >= 0) rates.push_back(static_cast<double>(files.size()) / (cpu_seconds() - start));
  }
  std::ranges::sort(rates);
  fmt::print("{:.0f} pictures/CPU-second (from {:.0f} to {:.0f}, {} rounds of {} files)\n",
             rates[rates.size() / 2], rates.front(), rates.back(), rounds, files.size());
}

}  // namespace
}  // namespace bedplate::data

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: image_bench FOLDER [SIDE [ROUNDS]]\n");
    return 2;
  }
  try {
    bedplate::data::measure(argv[1], argc > 2 ? std::atoi(argv[2]) : 224,
                            argc > 3 ? std::atoi(argv[3]) : 5);
  } catch (const std::exception& error) {
    fmt::print(stderr, "image_bench: {}\n", error.what());
    return 3;
  }
}
