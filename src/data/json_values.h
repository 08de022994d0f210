// Samples as JSON and back.
//
//   append_json(sample, line);                       // {"__key__":"17","label":3,"text":"…"}
//   const Schema schema = typing.schema();           // what many JSON objects are made of
//   encode_object(object, schema, out);              // the columns of a packed shard
//
// Numbers become numbers and lists of them; text, and bytes that are text, strings; other bytes
// {"base64": "…"}. Not finite numbers become "NaN", "Infinity" and "-Infinity", which are read too.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/schema.h"
#include "data/shard_index.h"

namespace bedplate::data {

// One line without its end.
void append_json(const Sample& sample, std::string& line);

// What the columns must be to hold all objects that were seen. A value: several can be merged, in
// the order of the samples. Numbers are i64, u64 where that is too small, or f64; lists of numbers
// have a shape; lists of other things and objects stay JSON, as text.
class JsonTyping {
 public:
  // `place` says where the object is, for messages: "line 18 of corpus.jsonl". Error{kInvalid} for
  // what is no object, null, and values that do not go together with those before.
  void add(const nlohmann::ordered_json& object, const std::string& place);
  void merge(const JsonTyping& later);
  Schema schema() const;

 private:
  enum class Kind { kBool, kNumber, kText, kList, kTable, kJson };
  struct Seen {
    Kind kind = Kind::kJson;
    bool floats = false;
    bool negative = false;
    bool beyond_i64 = false;
    bool beyond_f64 = false;    // an integer that f64 cannot hold
    std::int64_t shortest = 0;  // of lists
    std::int64_t longest = 0;
    std::int64_t inner = -1;  // of tables: the length of every row; -1: none was seen
    std::string place;        // of the first
  };
  static Seen look_at(const nlohmann::ordered_json& value, const std::string& name,
                      const std::string& place);
  static void look_at_number(const nlohmann::ordered_json& value, Seen& seen);
  static void join(Seen& into, const Seen& later, const std::string& name);
  static std::string_view name_of(Kind kind);

  std::vector<std::string> names_;  // in the order of the first object
  std::map<std::string, Seen, std::less<>> seen_;
  std::string first_place_;
};

// The bytes of each column. Error{kInvalid} for what is no object, for missing and further names,
// and for values that the columns cannot hold exactly; floating point numbers are rounded.
void encode_object(const nlohmann::ordered_json& object, const Schema& schema,
                   std::vector<std::string>& columns);

std::string to_base64(std::string_view bytes);

}  // namespace bedplate::data
