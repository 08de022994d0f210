// Samples, steps and events as short byte strings: LEB128 varints of differences, zigzag for what
// may be negative.
//
// A sample takes about 7 bytes, a step 35, an event 13. Differences are taken modulo 2^64, so every
// value survives the round trip, absurd ones too. Decoders take any bytes: they return false for
// what no encoder wrote, having appended what was read before it, and never read outside of
// `bytes`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "probe/run_data.h"

namespace bedplate::probe {

class Encoder {
 public:
  explicit Encoder(std::string& out) : out_(out) {}
  void number(std::uint64_t value);
  void signed_number(std::uint64_t difference);  // two's complement, zigzag

 private:
  std::string& out_;
};

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  bool number(std::uint64_t& value);
  bool signed_number(std::uint64_t& difference);

 private:
  std::string_view rest_;
};

void encode(std::span<const Sample> items, std::string& out);
void encode(std::span<const Step> items,
            std::string& out);  // without pid, which belongs to the stream
void encode(std::span<const Event> items, std::string& out);

bool decode(std::string_view bytes, std::vector<Sample>& items);
bool decode(std::string_view bytes, std::vector<Step>& items);
bool decode(std::string_view bytes, std::vector<Event>& items);

// An item with the stream it belongs to; samples of many streams go together into the row of one
// flush.
template <typename Item>
struct Pending {
  std::int64_t stream;
  Item item;
};
using StreamSample = Pending<Sample>;
void encode(std::span<const StreamSample> items, std::string& out);
bool decode(std::string_view bytes, std::vector<StreamSample>& items);

}  // namespace bedplate::probe
