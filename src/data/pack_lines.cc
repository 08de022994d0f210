// Lines as samples: of text, or JSON objects.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/json_text.h"
#include "data/json_values.h"
#include "data/pack_source.h"
#include "data/parallel.h"

namespace bedplate::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kChunk = 8 * kMiB;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What stands for a value that a line lacks.
class Filling {
 public:
  explicit Filling(std::span<const PackSourceOptions::Fill> fill) {
    for (const auto& [name, value] : fill) values_.emplace_back(name, parse_json(value));
  }

  void fill(Json& object) const {
    if (!object.is_object()) return;
    for (const auto& [name, value] : values_) {
      Json& there = object[name];  // null when it was not there
      if (there.is_null()) there = value;
    }
  }

 private:
  std::vector<std::pair<std::string, Json>> values_;
};

// Where the lines of all objects begin.
class Lines {
 public:
  enum class Empty { kKept, kLeftOut };

  Lines(std::span<const SourceObject> objects, Empty empty, const PackSourceOptions& options,
        const Watch& watch)
      : objects_(objects), empty_(empty) {
    std::vector<Chunk> chunks;
    for (std::size_t i = 0; i < objects.size(); ++i) {
      for (std::int64_t at = 0; at < objects[i].object.size; at += kChunk)
        chunks.push_back({i, at, std::min(kChunk, objects[i].object.size - at), {}});
    }
    Progress progress(watch, "finding the lines", "parts", std::ssize(chunks));
    for_each_of(chunks.size(), options.threads, [&](std::size_t i) {
      find_ends(chunks[i], options.timeout);
      progress.add(1, chunks[i].bytes);
    });
    join(chunks);
  }

  std::int64_t count() const { return std::ssize(begins_); }

  struct Line {
    std::size_t object;
    std::int64_t begin;
    std::int64_t bytes;
    std::int64_t number;  // from 1 on
  };
  Line line(std::int64_t sample) const {
    const auto at = static_cast<std::size_t>(sample);
    const auto behind = std::ranges::upper_bound(firsts_, at);
    const auto object = static_cast<std::size_t>(behind - firsts_.begin()) - 1;
    const auto begin = static_cast<std::int64_t>(begins_[at]);
    const bool is_last = at + 1 == begins_.size() || at + 1 == first_after(object);
    const std::int64_t end =
        is_last ? ends_[object] : static_cast<std::int64_t>(begins_[at + 1]) - 1;
    // With the ends of the empty lines behind it that were left out.
    const auto left_out =
        static_cast<std::size_t>(std::ranges::upper_bound(left_out_, at) - left_out_.begin()) -
        left_out_of_[object];
    return {object, begin, end - begin,
            static_cast<std::int64_t>(at - firsts_[object] + left_out) + 1};
  }

 private:
  struct Chunk {
    std::size_t object;
    std::int64_t offset;
    std::int64_t bytes;
    std::vector<std::uint32_t> ends;  // line feeds, from the chunk's begin on
    // Those of lines that are a carriage return alone, as Windows writes empty lines; where the
    // line begins with the chunk, that is so only if none began before.
    std::vector<std::uint32_t> lone_returns;
    bool ends_in_return = false;
  };

  std::size_t first_after(std::size_t object) const {
    return object + 1 < firsts_.size() ? firsts_[object + 1] : begins_.size();
  }

  void find_ends(Chunk& chunk, Nanos timeout) const {
    const SourceObject& one = objects_[chunk.object];
    std::vector<std::byte> bytes(static_cast<std::size_t>(chunk.bytes));
    store::read_exactly(*one.store,
                        {.key = one.object.key,
                         .offset = chunk.offset,
                         .into = bytes,
                         .version = one.object.version},
                        Deadline::after(timeout));
    const char* const begin = reinterpret_cast<const char*>(bytes.data());
    const char* const end = begin + bytes.size();
    for (const char* at = begin; at < end; ++at) {
      at = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
      if (at == nullptr) break;
      chunk.ends.push_back(static_cast<std::uint32_t>(at - begin));
      const bool is_return = at > begin && at[-1] == '\r' && (at - begin == 1 || at[-2] == '\n');
      if (is_return) chunk.lone_returns.push_back(chunk.ends.back());
    }
    chunk.ends_in_return = chunk.bytes > 0 && end[-1] == '\r';
  }

  void join(std::span<Chunk> chunks) {
    std::size_t at = 0;
    for (std::size_t object = 0; object < objects_.size(); ++object) {
      firsts_.push_back(begins_.size());
      left_out_of_.push_back(left_out_.size());
      std::int64_t begin = 0;
      std::int64_t last_end = -1;
      bool return_before = false;  // the last byte of the chunk before is a carriage return
      for (; at < chunks.size() && chunks[at].object == object; ++at) {
        Chunk& chunk = chunks[at];
        auto lone = chunk.lone_returns.begin();
        for (const std::uint32_t in_chunk : chunk.ends) {
          const std::int64_t end = chunk.offset + in_chunk;
          const bool returns =
              in_chunk == 0 ? return_before : lone != chunk.lone_returns.end() && *lone == in_chunk;
          if (in_chunk > 0 && returns) ++lone;
          take(begin, end - (returns && end - begin == 1 ? 1 : 0));
          begin = end + 1;
          last_end = end;
        }
        return_before = chunk.ends_in_return;
        chunk.ends = {};
        chunk.lone_returns = {};
      }
      const std::int64_t size = objects_[object].object.size;
      if (begin < size) take(begin, size - (return_before && size - begin == 1 ? 1 : 0));
      ends_.push_back(begin < size ? size : last_end);
    }
  }

  void take(std::int64_t begin, std::int64_t end) {
    if (end == begin && empty_ == Empty::kLeftOut) {
      left_out_.push_back(begins_.size());
    } else {
      begins_.push_back(static_cast<std::uint64_t>(begin));
    }
  }

  std::span<const SourceObject> objects_;
  const Empty empty_;
  std::vector<std::uint64_t> begins_;
  std::vector<std::size_t> firsts_;       // of each object: its first line
  std::vector<std::int64_t> ends_;        // of each object: where its last line ends
  std::vector<std::size_t> left_out_;     // lines: for each the next one that was kept
  std::vector<std::size_t> left_out_of_;  // of each object: how many were left out before it
};

class LinesSource : public PackSource {
 public:
  LinesSource(const SourceListing& listing, Target target, const PackSourceOptions& options,
              const Watch& watch)
      : objects_(listing.objects),
        target_(target),
        json_(listing.kind == "jsonl"),
        filling_(options.fill),
        lines_(objects_, json_ ? Lines::Empty::kLeftOut : Lines::Empty::kKept, options, watch) {
    if (lines_.count() == 0)
      throw Error(Code::kNotFound, "the files that were named hold no lines");
    field_ = !options.column.empty()     ? options.column
             : json_                     ? "json"
             : target == Target::kPacked ? "text"
                                         : "txt";
    if (target == Target::kWebDataset) return;
    if (!json_) {
      schema_ = Schema({{.name = field_, .dtype = Dtype::kUtf8}});
    } else {
      schema_ = options.schema ? *options.schema : typed(options, watch);
    }
  }

  std::int64_t samples() const override { return lines_.count(); }
  Cost cost(std::int64_t sample) const override { return {lines_.line(sample).bytes, 1}; }

  void pieces(std::int64_t sample, std::vector<Piece>& out) const override {
    const Lines::Line line = lines_.line(sample);
    const SourceObject& one = objects_[line.object];
    out.push_back({.store = one.store.get(),
                   .key = one.object.key,
                   .version = one.object.version,
                   .offset = line.begin,
                   .bytes = line.bytes});
  }

  void unpack(std::int64_t, std::span<const std::span<const std::byte>> raw,
              Sample& out) const override {
    out.clear();
    std::span<const std::byte> bytes = raw.front();
    // The lines of Windows end in \r\n. Behind JSON follow the empty lines that were left out.
    const auto ends = [&](char c) { return text_of(bytes).ends_with(c); };
    while (json_ && (ends('\n') || ends('\r'))) bytes = bytes.first(bytes.size() - 1);
    if (ends('\r')) bytes = bytes.first(bytes.size() - 1);
    const std::string_view text = text_of(bytes);
    if (!json_ && !is_utf8(text)) throw Error(Code::kInvalid, "it is no UTF-8 text");
    if (!json_ || target_ == Target::kWebDataset) {
      if (json_) check_json(text);
      const auto size = std::ssize(bytes);
      out.fields.push_back({field_, json_ ? Dtype::kBytes : Dtype::kUtf8, {size}, bytes});
      return;
    }
    std::vector<std::string> columns;
    Json object = parse_json(text);
    filling_.fill(object);
    encode_object(object, *schema_, columns);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Column& column = schema_->columns()[i];
      const std::string& owned = out.owned.emplace_back(std::move(columns[i]));
      out.fields.push_back({column.name, column.dtype, Schema::shape_of(column, owned.size()),
                            std::as_bytes(std::span(owned))});
    }
  }

  std::string name_of(std::int64_t sample) const override {
    const Lines::Line line = lines_.line(sample);
    const SourceObject& one = objects_[line.object];
    return fmt::format("line {} of {} in {}", line.number, to_utf8(one.object.key),
                       one.store->url());
  }

  const Schema& schema() const override { return *schema_; }

 private:
  // Reads all lines once.
  Schema typed(const PackSourceOptions& options, const Watch& watch) const {
    std::vector<std::int64_t> begins{0};  // of batches
    std::int64_t bytes = 0;
    for (std::int64_t i = 0; i < samples(); ++i) {
      bytes += lines_.line(i).bytes;
      if (bytes < kWindowBytes) continue;
      begins.push_back(i + 1);
      bytes = 0;
    }
    if (begins.back() != samples()) begins.push_back(samples());
    std::vector<JsonTyping> typings(begins.size() - 1);
    Progress progress(watch, "finding the types", "lines", samples());
    for_each_of(typings.size(), options.threads, [&](std::size_t batch) {
      PieceReader reader(options.timeout);
      std::vector<Piece> to_read;
      for (std::int64_t i = begins[batch]; i < begins[batch + 1]; ++i) pieces(i, to_read);
      reader.read(to_read);
      std::int64_t read = 0;
      for (std::size_t i = 0; i < to_read.size(); ++i) {
        const std::int64_t sample = begins[batch] + static_cast<std::int64_t>(i);
        read += to_read[i].bytes;
        try {
          if (to_read[i].error) throw *to_read[i].error;
          Json object = parse_json(text_of(to_read[i].got));
          filling_.fill(object);
          if (options.bad == PackSourceOptions::Bad::kSkipped && !object.is_object()) continue;
          typings[batch].add(object, name_of(sample));
        } catch (const Error& error) {
          const std::string_view why = error.what();
          const std::string where = name_of(sample);
          if (why.starts_with(where)) throw;
          if (options.bad == PackSourceOptions::Bad::kSkipped) continue;  // met again, and counted
          throw Error(error.code(), "{}: {}", where, why);
        }
      }
      progress.add(std::ssize(to_read), read);
    });
    JsonTyping all;
    for (const JsonTyping& typing : typings) all.merge(typing);
    return all.schema();
  }

  const std::vector<SourceObject> objects_;
  const Target target_;
  const bool json_;
  const Filling filling_;
  const Lines lines_;
  std::string field_;
  std::optional<Schema> schema_;
};

}  // namespace

PackSourceOptions::Fill parse_fill(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw Error(Code::kInvalid, "'{}' fills nothing: it is written NAME=VALUE, as in label=-1",
                to_utf8(text));
  const std::string_view value = text.substr(equals + 1);
  const std::string name(text.substr(0, equals));
  if (!Json::accept(value)) return {name, Json(to_utf8(value)).dump()};
  const Json json = parse_json(value, fmt::format("what fills {}", to_utf8(name)));
  if (json.is_null())
    throw Error(Code::kInvalid, "'{}': null is what no column holds", to_utf8(text));
  return {name, json.dump()};
}

std::unique_ptr<PackSource> open_lines_source(const SourceListing& listing, Target target,
                                              const PackSourceOptions& options,
                                              const Watch& watch) {
  return std::make_unique<LinesSource>(listing, target, options, watch);
}

}  // namespace bedplate::data
