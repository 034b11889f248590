#include <gtest/gtest.h>

#include "autograd/grad_check_cases.hpp"

// Gradients of all ops that are not in ops.def against central differences in f64.

namespace lockstep::test {
namespace {

const Tensor& index_of_three() {
  static const Tensor index = tensor<std::int64_t>({2, 0, 2});
  return index;
}

std::vector<GradCase> reductions() {
  using Reduce = Tensor (*)(const Tensor&, const Dims&, bool);
  const std::vector<std::pair<std::string, Reduce>> ops{
      {"sum", sum}, {"mean", mean}, {"logsumexp", logsumexp}, {"norm", norm}};
  std::vector<GradCase> cases;
  for (const auto& [name, op] : ops) {
    const auto add = [&, op = op](const std::string& suffix, const Dims& dims, bool keepdim) {
      cases.push_back({name + suffix, [=](const Tensors& in) { return op(in[0], dims, keepdim); },
                       shapes({{3, 2, 4}})});
    };
    add("_all", {}, false);
    add("_last", {-1}, false);
    add("_first_keep", {0}, true);
    add("_outer_two", {0, 2}, false);
    add("_middle_keep", {1}, true);
    cases.push_back({name + "_of_view",
                     [op = op](const Tensors& in) {
                       return op(in[0].permute({2, 0, 1}).slice(1, 0, 3, 2), {0, 2}, false);
                     },
                     shapes({{3, 2, 4}})});
  }
  for (const bool largest : {true, false})
    for (const Dims& dims : {Dims{}, Dims{-1}, Dims{0, 2}})
      cases.push_back(
          {(largest ? "amax_" : "amin_") + std::to_string(dims.size()),
           [=](const Tensors& in) { return largest ? amax(in[0], dims) : amin(in[0], dims); },
           [] {
             return Tensors{distinct({3, 4, 5})};
           }});
  return cases;
}

std::vector<GradCase> more_reductions() {
  return {
      {"var_population",
       [](const Tensors& in) {
         return var(in[0], {1, 2}, 0);
       },
       shapes({{3, 2, 4}})},
      {"var_unbiased_keep", [](const Tensors& in) { return var(in[0], {0}, 1, true); },
       shapes({{3, 4}})},
      {"var_all", [](const Tensors& in) { return var(in[0]); }, shapes({{3, 4}})},
      {"cumsum_first", [](const Tensors& in) { return cumsum(in[0], 0); }, shapes({{3, 2, 4}})},
      {"cumsum_last_of_view", [](const Tensors& in) { return cumsum(in[0].transpose(0, 1), -1); },
       shapes({{3, 4}})},
      {"topk_last", [](const Tensors& in) { return topk(in[0], 3).first; },
       [] {
         return Tensors{distinct({4, 6})};
       }},
      {"topk_first", [](const Tensors& in) { return topk(in[0], 2, 0).first; },
       [] {
         return Tensors{distinct({4, 6})};
       }},
  };
}

std::vector<GradCase> views() {
  return {
      {"reshape",
       [](const Tensors& in) {
         return in[0].reshape({6, -1});
       },
       shapes({{3, 4, 5}})},
      {"reshape_of_view",
       [](const Tensors& in) {
         return in[0].permute({1, 0, 2}).reshape({4, 15});
       },
       shapes({{3, 4, 5}})},
      {"flatten", [](const Tensors& in) { return in[0].flatten(1); }, shapes({{3, 4, 5}})},
      {"permute",
       [](const Tensors& in) {
         return in[0].permute({2, 0, 1});
       },
       shapes({{3, 4, 5}})},
      {"transpose", [](const Tensors& in) { return in[0].transpose(0, -1); }, shapes({{3, 4, 5}})},
      {"slice", [](const Tensors& in) { return in[0].slice(1, 1, 4, 2); }, shapes({{3, 4, 5}})},
      {"slice_of_slice", [](const Tensors& in) { return in[0].slice(0, 1, 6).slice(0, 0, 5, 2); },
       shapes({{7, 2}})},
      {"select", [](const Tensors& in) { return in[0].select(1, -2); }, shapes({{3, 4, 5}})},
      {"expand",
       [](const Tensors& in) {
         return in[0].expand({2, 3, 4});
       },
       shapes({{3, 1}})},
      {"unsqueeze", [](const Tensors& in) { return in[0].unsqueeze(1); }, shapes({{3, 4}})},
      {"squeeze", [](const Tensors& in) { return in[0].squeeze(1); }, shapes({{3, 1, 4}})},
      {"clone_of_view", [](const Tensors& in) { return in[0].transpose(0, 1).clone(); },
       shapes({{3, 4}})},
      {"channels_last", [](const Tensors& in) { return in[0].channels_last() * in[0]; },
       shapes({{2, 3, 4, 5}})},
  };
}

std::vector<GradCase> shape_ops() {
  return {
      {"cat", [](const Tensors& in) { return cat(in, 1); }, shapes({{2, 3}, {2, 1}, {2, 4}})},
      {"cat_of_one_twice",
       [](const Tensors& in) {
         return cat({in[0], in[0]}, 0);
       },
       shapes({{2, 3}})},
      {"stack", [](const Tensors& in) { return stack(in, -1); }, shapes({{2, 3}, {2, 3}})},
      {"split",
       [](const Tensors& in) {
         return split(in[0], {1, 3}, 1)[1];
       },
       shapes({{3, 4}})},
      {"split_all",
       [](const Tensors& in) {
         const auto parts = split(in[0], {2, 1, 2}, -1);
         return parts[0] * parts[1] + parts[2];
       },
       shapes({{3, 5}})},
      {"chunk", [](const Tensors& in) { return chunk(in[0], 3, 1)[2]; }, shapes({{3, 7}})},
      {"flip",
       [](const Tensors& in) {
         return flip(in[0], {0, -1});
       },
       shapes({{3, 4, 5}})},
      {"meshgrid",
       [](const Tensors& in) {
         const auto grid = meshgrid({in[0], in[1]}, "xy");
         return grid[0] * grid[1];
       },
       shapes({{3}, {2}})},
      {"roll", [](const Tensors& in) { return roll(in[0], -3, 1); }, shapes({{3, 4}})},
      {"pad",
       [](const Tensors& in) {
         return pad(in[0], std::vector<std::int64_t>{1, 2, 0, 1}, 0.5);
       },
       shapes({{2, 3, 4}})},
      {"tril", [](const Tensors& in) { return tril(in[0], -1); }, shapes({{2, 4, 5}})},
      {"triu_of_view", [](const Tensors& in) { return triu(in[0].transpose(1, 2), 1); },
       shapes({{2, 4, 5}})},
      {"index_select",
       [](const Tensors& in) { return index_select(in[0], 1, beside(in, index_of_three())); },
       shapes({{2, 3, 4}})},
      {"gather",
       [](const Tensors& in) {
         return gather(in[0], 1, beside(in, index_of_three()).unsqueeze(0).expand({2, 3}));
       },
       shapes({{2, 3}})},
  };
}

std::vector<GradCase> indexing() {
  const auto distinct_input = [] { return Tensors{distinct({4, 6})}; };
  return {
      {"max_dim", [](const Tensors& in) { return max(in[0], 1).first; }, distinct_input},
      {"min_dim_keep", [](const Tensors& in) { return min(in[0], 0, true).first; }, distinct_input},
      {"max_all", [](const Tensors& in) { return max(in[0]); }, distinct_input},
      {"sort_last", [](const Tensors& in) { return sort(in[0]).first; }, distinct_input},
      {"sort_first_falling", [](const Tensors& in) { return sort(in[0], 0, true).first; },
       distinct_input},
      {"topk_smallest", [](const Tensors& in) { return topk(in[0], 2, 1, false).first; },
       distinct_input},
      {"scatter_add",
       [](const Tensors& in) {
         const Tensor index = beside(in, index_of_three()).unsqueeze(1).expand({3, 2});
         return scatter_add(in[0], 0, index, in[1]);
       },
       shapes({{4, 2}, {3, 3}})},
      {"scatter_add_of_views",
       [](const Tensors& in) {
         const Tensor index = beside(in, index_of_three()).unsqueeze(0).expand({2, 3});
         return scatter_add(in[0].transpose(0, 1), 1, index, in[1].transpose(0, 1));
       },
       shapes({{4, 2}, {3, 2}})},
      {"index_add",
       [](const Tensors& in) {
         return index_add(in[0], 1, beside(in, index_of_three()), in[1], -0.5);
       },
       shapes({{2, 4}, {2, 3}})},
      {"masked_fill",
       [](const Tensors& in) {
         const Tensor mask = beside(in, index_of_three()) == 2.0;
         return masked_fill(in[0], mask, 7.0) * masked_fill(in[0], mask, in[1]);
       },
       shapes({{2, 3}, {}})},
      {"diagonal", [](const Tensors& in) { return in[0].diagonal(1, 2, 0); }, shapes({{3, 2, 4}})},
  };
}

std::vector<GradCase> einsums() {
  const auto with = [](std::string_view equation) {
    return [=](const Tensors& in) { return einsum(equation, in); };
  };
  return {
      {"einsum_product", with("ij,jk->ik"), shapes({{3, 4}, {4, 2}})},
      {"einsum_heads", with("bqhd,bkhd->bhqk"), shapes({{2, 3, 2, 4}, {2, 5, 2, 4}})},
      {"einsum_trace", with("ii"), shapes({{3, 3}})},
      {"einsum_outer_of_three", with("i,j,k->kij"), shapes({{2}, {3}, {2}})},
      {"einsum_broadcast", with("...ij,...j->...i"), shapes({{2, 1, 3, 4}, {5, 4}})},
      {"einsum_of_repeated_extents", with("ij,ij->i"), shapes({{3, 1}, {1, 4}})},
      {"einsum_of_views",
       [](const Tensors& in) {
         return einsum("ab,bc,cb->a", {in[0].transpose(0, 1), in[1], in[1].t()});
       },
       shapes({{3, 2}, {3, 4}})},
  };
}

std::vector<GradCase> prods() {
  const auto with_zeros = [](int count) {
    return [=] {
      Tensor x = uniform({2, 4}, 0.5, 2.0);
      for (int i = 0; i < count; ++i) x[1].narrow(0, i, 1).fill_(0.0);
      return Tensors{x};
    };
  };
  return {
      {"prod_all", [](const Tensors& in) { return prod(in[0]); }, with_zeros(0)},
      {"prod_rows", [](const Tensors& in) { return prod(in[0], {1}); }, with_zeros(0)},
      {"prod_of_a_zero", [](const Tensors& in) { return prod(in[0], {-1}, true); }, with_zeros(1)},
      {"prod_of_two_zeros", [](const Tensors& in) { return prod(in[0], {1}); }, with_zeros(2)},
      {"prod_of_view", [](const Tensors& in) { return prod(in[0].transpose(0, 1), {1}); },
       with_zeros(1)},
  };
}

std::vector<GradCase> products() {
  const auto product = [](const Tensors& in) { return matmul(in[0], in[1]); };
  const auto projection = [](const Tensors& in) {
    return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  };
  return {
      {"matmul", product, shapes({{3, 5}, {5, 4}})},
      {"matmul_vectors", product, shapes({{5}, {5}})},
      {"matmul_vector_matrix", product, shapes({{5}, {5, 4}})},
      {"matmul_matrix_vector", product, shapes({{2, 3, 5}, {5}})},
      {"matmul_batched", product, shapes({{2, 3, 5}, {2, 5, 4}})},
      {"matmul_batch_by_matrix", product, shapes({{2, 3, 5}, {5, 4}})},
      {"matmul_matrix_by_batch", product, shapes({{3, 5}, {2, 5, 4}})},
      {"matmul_broadcast", product, shapes({{2, 1, 3, 5}, {4, 5, 2}})},
      {"matmul_of_transposed",
       [](const Tensors& in) { return matmul(in[0].transpose(0, 1), in[1].transpose(0, 1)); },
       shapes({{5, 3}, {4, 5}})},
      {"matmul_of_strided",
       [](const Tensors& in) { return matmul(in[0].slice(1, 0, 10, 2), in[1].slice(0, 1, 6)); },
       shapes({{3, 10}, {7, 4}})},
      {"matmul_of_repeated_row",
       [](const Tensors& in) {
         return matmul(in[0].expand({3, 5}), in[1]);
       },
       shapes({{1, 5}, {5, 2}})},
      {"matmul_with_itself", [](const Tensors& in) { return matmul(in[0], in[0]); },
       shapes({{4, 4}})},
      {"matmul_of_one_column", product, shapes({{3, 1}, {1, 4}})},
      {"linear", projection, shapes({{2, 3, 5}, {4, 5}, {4}})},
      {"linear_without_bias", projection, shapes({{3, 5}, {4, 5}})},
      {"linear_of_a_vector", projection, shapes({{5}, {4, 5}, {4}})},
      {"add_linear", [](const Tensors& in) { return add_linear(in[0], in[1], in[2], in[3]); },
       shapes({{2, 3, 4}, {2, 3, 5}, {4, 5}, {4}})},
      {"add_linear_to_its_input",
       [](const Tensors& in) { return add_linear(in[0], in[0].transpose(0, 1), in[1]); },
       shapes({{4, 4}, {4, 4}})},
      {"mlp",
       [](const Tensors& in) {
         return mlp(in[0], {in[1], in[2], in[3], in[4]});
       },
       shapes({{2, 3, 5}, {8, 5}, {8}, {4, 8}, {4}})},
      {"mlp_beside_a_residual",
       [](const Tensors& in) {
         return mlp(in[0], {in[1], in[2], in[3], {}}, {.addend = in[0]});
       },
       shapes({{3, 4}, {6, 4}, {6}, {4, 6}})},
      {"mlp_of_frozen_layers",
       [](const Tensors& in) {
         const Tensor x = beside(in, distinct({5, 4}, -1, 1)),
                      bias = beside(in, distinct({4}, -1, 1));
         return mlp(x, {beside(in, distinct({4, 4}, -1, 1)), bias, in[0], in[1]}, {});
       },
       shapes({{3, 4}, {3}})},
      {"mlp_by_erf",
       [](const Tensors& in) {
         return mlp(in[0], {in[1], in[2], in[3], in[4]},
                    {.approximation = GeluApproximation::none, .addend = in[5]});
       },
       shapes({{3, 5}, {6, 5}, {6}, {4, 6}, {4}, {3, 4}})},
      {"linear_of_views",
       [](const Tensors& in) {
         return linear(in[0].transpose(0, 1), in[1].slice(1, 0, 10, 2), in[2].expand({4}));
       },
       shapes({{5, 3}, {4, 10}, {1}})},
      {"linear_with_tied_operands", [](const Tensors& in) { return linear(in[0], in[0]); },
       shapes({{4, 4}})},
  };
}

class Gradients : public ::testing::TestWithParam<GradCase> {};

TEST_P(Gradients, MatchDifferences) {
  testing::expect_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(Gradients, OfGradientsMatchDifferences) {
  testing::expect_second_gradients(GetParam().op, GetParam().inputs());
}

TEST_P(Gradients, LeaveNothingAlive) { expect_no_leak(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Reduce, Gradients, ::testing::ValuesIn(reductions()), case_name);
INSTANTIATE_TEST_SUITE_P(MoreReduce, Gradients, ::testing::ValuesIn(more_reductions()), case_name);
INSTANTIATE_TEST_SUITE_P(Views, Gradients, ::testing::ValuesIn(views()), case_name);
INSTANTIATE_TEST_SUITE_P(Shape, Gradients, ::testing::ValuesIn(shape_ops()), case_name);
INSTANTIATE_TEST_SUITE_P(Matmul, Gradients, ::testing::ValuesIn(products()), case_name);
INSTANTIATE_TEST_SUITE_P(Indexing, Gradients, ::testing::ValuesIn(indexing()), case_name);
INSTANTIATE_TEST_SUITE_P(Einsum, Gradients, ::testing::ValuesIn(einsums()), case_name);
INSTANTIATE_TEST_SUITE_P(Prod, Gradients, ::testing::ValuesIn(prods()), case_name);

class GradientsOnGpu : public GradCasesOnGpu {};

TEST_F(GradientsOnGpu, OfReductionsMatchDifferences) {
  check(reductions());
  check(more_reductions());
}
TEST_F(GradientsOnGpu, OfViewsMatchDifferences) { check(views()); }
TEST_F(GradientsOnGpu, OfShapeOpsMatchDifferences) { check(shape_ops()); }
TEST_F(GradientsOnGpu, OfProductsMatchDifferences) { check(products()); }
TEST_F(GradientsOnGpu, OfIndexedOpsMatchDifferences) { check(indexing()); }
TEST_F(GradientsOnGpu, OfEinsumMatchDifferences) { check(einsums()); }
TEST_F(GradientsOnGpu, OfProdMatchDifferences) { check(prods()); }

}  // namespace
}  // namespace lockstep::test
