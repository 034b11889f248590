#include "lockstep/io/safetensors_header.hpp"

#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "safetensors_bytes.hpp"

namespace lockstep::io {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view good =
    R"({"__metadata__":{"by":"hand"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
    R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}  )";

// The message for a header of one tensor "a" with the given fields and 8 bytes of data.
std::string with_fields(std::string_view fields) {
  return corruption(file_bytes("{\"a\":{" + std::string(fields) + "}}", 8));
}

TEST(SafetensorsHeader, ListsTensorsInTheOrderOfTheirBytes) {
  const auto header = parse(file_bytes(good, 32));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].shape, Shape{});
  EXPECT_EQ(header.entries[1].name, "b");
  EXPECT_EQ(header.entries[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header.entries[1].begin, 8u);
  EXPECT_EQ(header.data_begin, 8 + good.size());
  EXPECT_EQ(header.metadata.at("by"), "hand");
}

TEST(SafetensorsHeader, IsReadFromTheBeginningOfAFileOfWhichTheRestIsElsewhere) {
  const std::string bytes = file_bytes(good);
  const auto beginning = std::as_bytes(std::span(bytes));
  EXPECT_EQ(parse_safetensors_header(beginning, bytes.size() + 32, "f").entries.size(), 2u);
  EXPECT_THROW(parse_safetensors_header(beginning, bytes.size() + 31, "f"), CorruptData);
}

TEST(SafetensorsHeader, AcceptsAFileWithoutTensorsAndTensorsWithoutElements) {
  EXPECT_TRUE(parse(file_bytes("{}")).entries.empty());
  EXPECT_TRUE(parse(file_bytes(R"({"__metadata__":{}})")).entries.empty());
  const auto header = parse(file_bytes(R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                       1));
  EXPECT_EQ(header.entries.size(), 2u);
}

TEST(SafetensorsHeader, CountsTypesOfLessThanAByte) {
  const auto header =
      parse(file_bytes(R"({"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},)"
                       R"("b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}})",
                       6));
  EXPECT_EQ(header.entries.size(), 2u);
  EXPECT_THAT(corruption(file_bytes(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2)),
              HasSubstr("does not end with a whole byte"));
}

TEST(SafetensorsHeader, RejectsTruncationAtEveryOffset) {
  const std::string whole = file_bytes(good, 32);
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(corruption(whole.substr(0, length)), "") << length;
  EXPECT_EQ(corruption(whole), "");
}

TEST(SafetensorsHeader, RejectsTrailingBytes) {
  EXPECT_THAT(corruption(file_bytes(good, 33)), HasSubstr("trailing"));
  EXPECT_THAT(corruption(file_bytes("{} {}")), HasSubstr("offset 11"));
  EXPECT_THAT(corruption(file_bytes(std::string("{}\0x", 4))), HasSubstr("NUL byte"));
}

TEST(SafetensorsHeader, RejectsAPromisedHeaderThatCannotBe) {
  for (const std::uint64_t length : {std::uint64_t{1} << 32, ~std::uint64_t{0}, ~std::uint64_t{7}})
    EXPECT_THAT(corruption(length_bytes(length) + std::string(4088, ' ')), HasSubstr("at most"));
  EXPECT_THAT(corruption(length_bytes(5000) + "{" + std::string(4087, ' ')),
              HasSubstr("only 4088 bytes follow"));
}

TEST(SafetensorsHeader, SaysWhatAFileOfAnotherFormatIs) {
  const std::string rest(2000, '\0');
  EXPECT_THAT(corruption("PK\x03\x04" + rest), HasSubstr("a zip archive, as torch.save writes it"));
  EXPECT_THAT(corruption("PK\x03\x04" + rest), HasSubstr("safetensors.torch.save_file"));
  EXPECT_THAT(corruption("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9" + rest), HasSubstr("a Python pickle"));
  EXPECT_THAT(corruption("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(corruption("root:x:0:0:root:/root:/bin/bash\n"), HasSubstr("not a safetensors file"));
  // A length that starts as a pickle does.
  const std::string header = "{}" + std::string(0x280 - 2, ' ');
  EXPECT_EQ(corruption(file_bytes(header)), "");
}

TEST(SafetensorsHeader, RejectsMoreItemsThanTheFileHolds) {
  EXPECT_THAT(
      corruption(file_bytes(
          R"({"a":{"dtype":"F32","shape":[4294967296],"data_offsets":[0,17179869184]}})", 4000)),
      HasSubstr("truncated"));
}

TEST(SafetensorsHeader, RejectsSizesThatOverflow) {
  EXPECT_THAT(with_fields(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
              HasSubstr("2^63"));
  EXPECT_THAT(with_fields(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
              HasSubstr("2^63"));
  // Nothing is stored, yet no tensor can have these extents.
  EXPECT_THAT(with_fields(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"),
              HasSubstr("2^63"));
  EXPECT_THAT(with_fields(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])"),
              HasSubstr("the extent 18446744073709551615"));
  EXPECT_THAT(with_fields(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8])"),
              HasSubstr("99999999999999999999"));
}

TEST(SafetensorsHeader, RejectsNumbersThatAreNoExtents) {
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[-1],"data_offsets":[0,8])"), HasSubstr("-1"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[1.0],"data_offsets":[0,8])"), HasSubstr("1.0"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":["1"],"data_offsets":[0,8])"),
              HasSubstr("the string '1'"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[null],"data_offsets":[0,8])"),
              HasSubstr("null"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":1,"data_offsets":[0,8])"), HasSubstr("number"));
}

TEST(SafetensorsHeader, RejectsOffsetsThatDoNotFit) {
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[-8,0])"), HasSubstr("-8"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[8,0])"), HasSubstr("[8, 0]"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[0,4])"),
              HasSubstr("takes 8 bytes"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[0])"),
              HasSubstr("in place of 2"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[0,8,8])"),
              HasSubstr("third"));
}

TEST(SafetensorsHeader, RejectsOverlapsAndHoles) {
  const auto two = [](std::string_view second) {
    return corruption(file_bytes(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{)" +
                                     std::string(second) + "}}",
                                 16));
  };
  EXPECT_THAT(two(R"("dtype":"U8","shape":[12],"data_offsets":[4,16])"), HasSubstr("inside"));
  EXPECT_THAT(two(R"("dtype":"U8","shape":[4],"data_offsets":[12,16])"), HasSubstr("hole"));
  EXPECT_THAT(two(R"("dtype":"U8","shape":[16],"data_offsets":[0,16])"), HasSubstr("inside"));
}

TEST(SafetensorsHeader, RejectsKeysThatAppearTwice) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(corruption(file_bytes("{" + entry + "," + entry + "}")), HasSubstr("'a' appears"));
  EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":{},"__metadata__":{}})")),
              HasSubstr("'__metadata__' appears twice"));
  EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":{"k":"1","k":"2"}})")),
              HasSubstr("key 'k' appears twice"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","dtype":"I64","shape":[],"data_offsets":[0,8])"),
              HasSubstr("'dtype' twice"));
}

TEST(SafetensorsHeader, RejectsKeysThatAreMissingOrUnknown) {
  EXPECT_THAT(with_fields(R"("shape":[],"data_offsets":[0,8])"), HasSubstr("lacks"));
  EXPECT_THAT(with_fields(R"("dtype":"I64","shape":[],"data_offsets":[0,8],"run":"me")"),
              HasSubstr("'run'"));
  EXPECT_THAT(with_fields(R"("dtype":"Q9","shape":[8],"data_offsets":[0,8])"), HasSubstr("'Q9'"));
}

TEST(SafetensorsHeader, RejectsValuesOfTheWrongKind) {
  EXPECT_THAT(corruption(file_bytes("[]")), HasSubstr("'{'"));
  EXPECT_THAT(corruption(file_bytes(" {}")), HasSubstr("'{'"));
  EXPECT_THAT(corruption(file_bytes(R"({"a":5})")), HasSubstr("number 5"));
  EXPECT_THAT(corruption(file_bytes(R"({"a":[]})")), HasSubstr("a list"));
  EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":[]})")), HasSubstr("a list"));
  EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":{"a":1}})")), HasSubstr("number 1"));
  EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":{"a":{}}})")), HasSubstr("an object"));
  EXPECT_THAT(with_fields(R"("dtype":{},"shape":[],"data_offsets":[0,8])"), HasSubstr("object"));
  EXPECT_THAT(with_fields(R"("dtype":true,"shape":[],"data_offsets":[0,8])"), HasSubstr("truth"));
}

TEST(SafetensorsHeader, RejectsDeepNestingWithoutDescending) {
  for (const char* opening : {"[", "{\"a\":"}) {
    std::string deep = R"({"a":{"shape":)";
    for (int i = 0; i < 1'000'000; ++i) deep += opening;
    EXPECT_NE(corruption(file_bytes(deep)), "");
  }
}

TEST(SafetensorsHeader, RejectsTextThatIsNotUtf8) {
  for (const std::string bad : {"\xFF", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"})
    EXPECT_THAT(corruption(file_bytes(R"({"__metadata__":{")" + bad + R"(":""}})")),
                HasSubstr("offset"));
  EXPECT_THAT(corruption(file_bytes(R"({"\ud800":{}})")), HasSubstr("broken JSON"));
}

TEST(SafetensorsHeader, RefusesMoreDimensionsThanATensorHas) {
  EXPECT_THROW(parse(file_bytes(
                   R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1)),
               Unsupported);
}

TEST(SafetensorsHeader, NamesFileAndPlaceFitForATerminal) {
  const std::string message =
      corruption(file_bytes("{\"" + std::string(5000, 'x') + "\\u001b[2J\":{}}"));
  EXPECT_THAT(message, HasSubstr("test.safetensors"));
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::io
