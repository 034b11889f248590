#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/every_op.hpp"
#include "lockstep/observe/trace_range.hpp"
#include "support/described_ops.hpp"
#include "support/place.hpp"

// What ops say to dtypes they do not take: an error that names the op, the dtype and the device.

namespace lockstep::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

void expect_refused(const Op& op, const TensorOptions& given) {
  try {
    op.call(given);
    ADD_FAILURE() << "accepted";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(op.in_messages), HasSubstr(std::string(name(given.dtype))),
                      HasSubstr(given.device.is_cuda() ? "cuda:0" : "cpu")));
  }
}

constexpr DType floating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr DType integers[] = {DType::i64, DType::i32};
constexpr DType bytes[] = {DType::u8};

void expect_taken(const Op& op, const TensorOptions& given) {
  EXPECT_TRUE(op.call(given).defined());
}

void expect_taken_or_refused(const Op& op, const TensorOptions& given) {
  if (op.takes_integers)
    expect_taken(op, given);
  else
    expect_refused(op, given);
}

void expect_bool_taken_or_refused(const Op& op, const TensorOptions& given) {
  if (op.takes_bool)
    expect_taken(op, given);
  else
    expect_refused(op, given);
}

/// Calls `check` for each dtype, saying which op, backend and dtype in messages.
template <class Dtypes, class Check>
void on(const testing::Place& place, const Op& op, const Dtypes& dtypes, Check&& check) {
  const testing::PlaceScope scope(place);
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(lockstep::detail::concat(op, " on ", place, " in ", dtype));
    check(op, {dtype, place.device});
  }
}

/// Every op on every backend of the CPU.
template <class Dtypes, class Check>
void on_every_backend(const Dtypes& dtypes, Check&& check,
                      const std::vector<Op>& ops = every_op()) {
  for (const auto backend : backend::cpu_backends())
    for (const Op& op : ops) on({backend, cpu}, op, dtypes, check);
}

TEST(OpDtypes, EveryFloatingOneIsTakenByEveryOp) { on_every_backend(floating, expect_taken); }

TEST(OpDtypes, IntegersAreTakenOrRefusedByName) {
  on_every_backend(integers, expect_taken_or_refused);
}

TEST(OpDtypes, BytesAreTakenByElementwiseOpsOfIntegers) {
  on_every_backend(bytes, expect_taken_or_refused, pointwise_ops());
}

TEST(OpDtypes, BoolIsTakenOrRefusedByName) {
  on_every_backend(std::array{DType::boolean}, expect_bool_taken_or_refused);
}

class OpDtypesOnGpu : public testing::OnGpu {};

TEST_F(OpDtypesOnGpu, AreThoseOfTheCpu) {
  for (const Op& op : every_op()) {
    const testing::Place gpu{"cuda", device};
    on(gpu, op, floating, expect_taken);
    on(gpu, op, integers, expect_taken_or_refused);
    on(gpu, op, std::array{DType::boolean}, expect_bool_taken_or_refused);
  }
}

bool is_taken(const Op& op, const TensorOptions& given) {
  try {
    return op.call(given).defined();
  } catch (const Unsupported&) {
    return false;
  }
}

TEST_F(OpDtypesOnGpu, OfBytesAreThoseOfTheCpu) {
  for (const Op& op : pointwise_ops()) on({"cuda", device}, op, bytes, expect_taken_or_refused);
  for (const Op& op : every_op())
    EXPECT_EQ(is_taken(op, {DType::u8, device}), is_taken(op, {DType::u8, cpu})) << op;
}

/// The ranges that no other range of the thread contains.
class OuterRanges final : public TraceSink {
 public:
  OuterRanges() { add_trace_sink(*this); }
  ~OuterRanges() override { remove_trace_sink(*this); }
  OuterRanges(const OuterRanges&) = delete;
  OuterRanges& operator=(const OuterRanges&) = delete;
  void begin(std::string_view name, TracePhase) noexcept override {
    if (depth_++ == 0) names.emplace_back(name);
  }
  void end() noexcept override { --depth_; }
  std::vector<std::string> names;

 private:
  int depth_ = 0;
};

TEST(Ops, OpenATraceRangeOfTheirNameAroundAllTheyDo) {
  for (const Op& op : every_op()) {
    const OuterRanges ranges;
    op.call({DType::f32, cpu});
    // pow(x, 2) and x / 2 are what users call them.
    const std::string called = op.name == "pow_scalar"   ? "pow"
                               : op.name == "div_scalar" ? "div"
                                                         : op.name;
    EXPECT_THAT(ranges.names, Contains(called)) << op.name;
  }
}

TEST(Ops, AreAllCalledByTheTestsOfAllOps) {
  // Of i64 alone, or of no tensor.
  constexpr std::string_view others[] = {"bincount", "one_hot", "randint", "randperm"};
  const std::vector<Op> listed = other_ops();
  for (const std::string& op : testing::described_ops()) {
    const bool found = std::ranges::find(listed, op, &Op::name) != listed.end() ||
                       std::ranges::find(others, op) != std::end(others);
    EXPECT_TRUE(found) << op << " is missing in tests/contract/every_op.hpp";
  }
}

void expect_mixed_operands_refused(Device device) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  const TensorOptions wide{DType::f64, device};
  const Tensor a = ones({2, 2}, {DType::f32, device}), b = ones({2, 2}, wide);
  const auto both = AllOf(HasSubstr("f32"), HasSubstr("f64"));
  EXPECT_THAT(message([&] { add(a, b); }), both);
  EXPECT_THAT(message([&] { matmul(a, b); }), both);
  EXPECT_THAT(message([&] { linear(a, b); }), both);
  EXPECT_THAT(message([&] { where(gt(a, a), a, b); }), both);
  EXPECT_THAT(message([&] { cat({a, b}); }), both);
  EXPECT_THAT(message([&] { layer_norm(a, {2}, ones({2}, wide)); }), both);
  EXPECT_THAT(message([&] { where(a, a, a); }), HasSubstr("bool"));
  EXPECT_THAT(message([&] { embedding(a, a); }), HasSubstr("i64"));
  const Tensor index = zeros({2}, {DType::i64, device});
  EXPECT_THAT(message([&] { add_embedding(b, index, a); }), both);
  EXPECT_THAT(message([&] {
                add_embedding(ones({3, 2}, a.options()), index, a);
              }),
              AllOf(HasSubstr("addend of shape [3, 2]"), HasSubstr("[2, 2]")));
  EXPECT_THAT(message([&] {
                self_attention(a.reshape({1, 1, 4}), 1);
              }),
              HasSubstr("[N, T, 3 * features]"));
  EXPECT_THAT(message([&] { gather(a, 0, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { scatter_add(a, 0, a, a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { one_hot(a); }), HasSubstr("i64"));
  EXPECT_THAT(message([&] { masked_fill(a, a, 1.0); }), HasSubstr("bool"));
  EXPECT_THAT(message([&] { searchsorted(a, b); }), both);
}

TEST(MixedOperands, AreRefusedWithBothDtypes) { expect_mixed_operands_refused(cpu); }

class MixedOperandsOnGpu : public testing::OnGpu {};
TEST_F(MixedOperandsOnGpu, AreRefusedWithBothDtypes) { expect_mixed_operands_refused(device); }

}  // namespace
}  // namespace lockstep::test
