#include "lockstep/core/dtype.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(DType, DispatchesToTheTypeOfThatSize) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::u8, DType::boolean})
    dispatch_all(dtype, "test", [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(dtype_of<T>, dtype);
      EXPECT_EQ(sizeof(T), size_of(dtype));
      EXPECT_EQ(is_floating_type<T>, is_floating(dtype));
    });
  EXPECT_THROW(dispatch_floating(DType::i32, "test", [](auto) {}), Unsupported);
  EXPECT_THROW(dispatch_numeric(DType::boolean, "test", [](auto) {}), Unsupported);
}

}  // namespace
}  // namespace lockstep
