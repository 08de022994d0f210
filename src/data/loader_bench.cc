// Epochs of small samples through the loader, for counting what a sample costs:
//
//   loader_bench FOLDER SAMPLES EPOCHS     // makes the shards when they are not there
//
// Prints samples, seconds and nanoseconds a sample. tests/cost counts its instructions.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "data/loader.h"
#include "data/packed_writer.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kTokens = 256;
constexpr std::int64_t kShards = 4;

void make_shards(const std::string& folder, std::int64_t samples) {
  const Schema schema({{.name = "tokens", .dtype = Dtype::kU16, .shape = {kTokens}}});
  std::vector<std::uint16_t> tokens(kTokens);
  for (std::int64_t shard = 0; shard < kShards; ++shard) {
    const auto place = store::locate(fmt::format("{}/{:06}.shard", folder, shard));
    PackedWriter writer(
        place.store->create(place.key, store::IfExists::kReplace, store::kDefaultTimeout), schema);
    for (std::int64_t i = shard; i < samples; i += kShards) {
      for (std::int64_t k = 0; k < kTokens; ++k)
        tokens[static_cast<std::size_t>(k)] = static_cast<std::uint16_t>(i + k);
      const std::span<const std::byte> value[] = {std::as_bytes(std::span(tokens))};
      writer.add(value);
    }
    writer.finish();
  }
}

int run(const std::string& folder, std::int64_t samples, std::int64_t epochs) {
  if (!std::filesystem::exists(folder)) make_shards(folder, samples);
  const std::string urls[] = {folder + "/"};
  const auto source =
      std::make_shared<const Source>(std::vector<SourcePart>{{.dataset = Dataset::open(urls)}},
                                     SourceOptions{.seed = 1, .block = 256, .window = 4096});
  Loader loader(source, {.batch_size = 64, .threads = 1});
  const Nanos began = real_clock().now();
  std::int64_t count = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    while (const auto batch = loader.next()) count += batch->count;
    loader.begin(loader.state());
  }
  const Nanos took = real_clock().now() - began;
  fmt::print("{} samples {:.3f} s {:.0f} ns a sample\n", count, static_cast<double>(took) / 1e9,
             static_cast<double>(took) / static_cast<double>(std::max<std::int64_t>(count, 1)));
  return 0;
}

}  // namespace
}  // namespace bedplate::data

int main(int argc, char** argv) {
  const auto number = [&](int at) {
    const std::string_view text = argv[at];
    std::int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  if (argc != 4 || number(2) < 1 || number(3) < 0) {
    fmt::print(stderr, "usage: loader_bench FOLDER SAMPLES EPOCHS\n");
    return 2;
  }
  try {
    return bedplate::data::run(argv[1], number(2), number(3));
  } catch (const bedplate::Error& error) {
    fmt::print(stderr, "loader_bench: {}\n", error.what());
    return 3;
  }
}
