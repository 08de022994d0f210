// .npy files: what NumPy writes, and what nobody should read.
#include "data/decode/npy.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "data/test_bytes.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string npy(std::string_view head, std::size_t data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(head.size() >> 8 * i);
  file += head;
  for (std::size_t i = 0; i < data; ++i) file += static_cast<char>(i);
  return file;
}
std::string refusal(Code code, std::string_view file) {
  try {
    parse_npy(bytes_of(file));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "taken";
}

TEST(Npy, AllVersionsAndDtypes) {
  const std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      \n";
  for (const int version : {1, 2, 3}) {
    const std::string file = npy(head, 24, version);
    const NpyArray array = parse_npy(bytes_of(file));
    EXPECT_EQ(array.dtype, Dtype::kF32);
    EXPECT_THAT(array.shape, ElementsAre(2, 3));
    EXPECT_EQ(array.bytes.data(), bytes_of(file).data() + file.size() - 24);
    EXPECT_EQ(array.bytes.size(), 24U);
  }
  const std::pair<const char*, Dtype> dtypes[] = {
      {"|b1", Dtype::kBool}, {"|i1", Dtype::kI8},  {"|u1", Dtype::kU8},  {"<i2", Dtype::kI16},
      {"<u2", Dtype::kU16},  {"<i4", Dtype::kI32}, {"<u4", Dtype::kU32}, {"<i8", Dtype::kI64},
      {"<u8", Dtype::kU64},  {"<f2", Dtype::kF16}, {"<f4", Dtype::kF32}, {"<f8", Dtype::kF64}};
  for (const auto& [descr, dtype] : dtypes) {
    const std::string file =
        npy(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (), }}\n", descr),
            size_of(dtype));
    EXPECT_EQ(parse_npy(bytes_of(file)).dtype, dtype);
    EXPECT_THAT(parse_npy(bytes_of(file)).shape, IsEmpty());
  }
}

TEST(Npy, AnyOrderAndSpacing) {
  const std::string file = npy("{\"shape\":(4,),'fortran_order' :True,'descr':'|u1'}", 4);
  EXPECT_THAT(parse_npy(bytes_of(file)).shape, ElementsAre(4));
  const std::string empty =
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 0, 5), }", 0);
  EXPECT_THAT(parse_npy(bytes_of(empty)).shape, ElementsAre(3, 0, 5));
  EXPECT_TRUE(parse_npy(bytes_of(empty)).bytes.empty());
}

TEST(Npy, EveryCutIsRefused) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes)
    ASSERT_THAT(refusal(Code::kCorrupt, file.substr(0, bytes)), HasSubstr("cut off")) << bytes;
  EXPECT_THAT(refusal(Code::kCorrupt, file + "x"), HasSubstr("1 bytes lie behind"));
}

TEST(Npy, OddHeadsAreRefused) {
  const auto head = [](std::string_view descr, std::string_view fortran, std::string_view shape) {
    return npy(
        fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}\n", descr, fortran, shape),
        24);
  };
  const std::pair<std::string, const char*> corrupt[] = {
      {"hello", "begins otherwise"},
      {npy("", 0), "lacks a {"},
      {npy("{}", 0), "lacks descr"},
      {npy("{'descr", 0), "does not end"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", 0), "twice"},
      {npy("{'descr': '<f4', 'colour': 'red'}", 0), "nobody knows it"},
      {head("'<f4'", "False", "(2, 3)").insert(10, " "), "lie behind"},
      {head("'<f4'", "0", "(2, 3)"), "neither True nor False"},
      {head("'<f4'", "False", "(6)"), "lacks a comma"},
      {head("'<f4'", "False", "(-2, -3)"), "no number"},
      {head("'<f4'", "False", "(6.0,)"), "lacks a comma"},
      {head("'<f4'", "False", "[6]"), "lacks a ("},
      {head("'<f4'", "False", "(4294967296, 4294967296, 4294967296)"), "larger than any memory"},
      {head("'<f4'", "False", "(99999999999999999999,)"), "no number"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), } print(1)", 24), "goes on"}};
  for (const auto& [file, words] : corrupt)
    EXPECT_THAT(refusal(Code::kCorrupt, file), HasSubstr(words));
  const std::pair<std::string, const char*> unsupported[] = {
      {head("'<f4'", "True", "(2, 3)"), "np.ascontiguousarray"},
      {head("'>f4'", "False", "(6,)"), "a.astype('<f4')"},
      {head("'|O'", "False", "(3,)"), "pickled"},
      {head("[('a', '<f4')]", "False", "(6,)"), "structured"},
      {head("'<U6'", "False", "(1,)"), "dtype '<U6'"},
      {head("'<c8'", "False", "(3,)"), "dtype '<c8'"},
      {head("'<M8[ns]'", "False", "(3,)"), "dtype '<M8[ns]'"},
      {npy("", 0, 4), "version 4.0"}};
  for (const auto& [file, words] : unsupported)
    EXPECT_THAT(refusal(Code::kUnsupported, file), HasSubstr(words));
}

TEST(Npy, NoChangedByteCrashes) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  int refused = 0;
  for (std::size_t at = 0; at + 24 < file.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      std::string bent = file;
      bent[at] = static_cast<char>(value);
      try {
        const NpyArray array = parse_npy(bytes_of(bent));
        std::size_t elements = size_of(array.dtype);
        for (const std::int64_t n : array.shape) elements *= static_cast<std::size_t>(n);
        ASSERT_EQ(elements, array.bytes.size());
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace bedplate::data
