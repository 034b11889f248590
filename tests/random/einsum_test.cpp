#include "lockstep/autograd/ops/einsum.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "random/naive.hpp"

// Random equations over random shapes and memory layouts, against one loop over all letters.

namespace lockstep::testing {
namespace {

using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

constexpr std::string_view alphabet = "abcde";

/// An equation, and what each letter stands for.
struct Equation {
  std::vector<std::string> terms;
  std::string result;
  Dims extents = Dims::filled(static_cast<int>(alphabet.size()), 1);

  explicit Equation(RandomCase& c) {
    for (int i = 0; i < extents.size(); ++i) extents[i] = c.extent(5);
    std::set<char> used;
    for (auto count = c.integer(1, 3); count > 0; --count) {
      std::string term;
      for (auto letters = c.integer(0, 3); letters > 0; --letters)
        term += alphabet[static_cast<std::size_t>(c.integer(0, 4))];
      used.insert(term.begin(), term.end());
      terms.push_back(term);
    }
    for (const char letter : used)
      if (c.chance(0.5)) result.insert(c.chance(0.5) ? 0 : result.size(), 1, letter);
  }
  std::string text() const {
    std::string all = terms[0];
    for (std::size_t i = 1; i < terms.size(); ++i) all += ", " + terms[i];
    return all + " -> " + result;
  }
  Shape shape_of(const std::string& term) const {
    Shape shape;
    for (const char letter : term) shape.push_back(extents[letter - 'a']);
    return shape;
  }
  /// The position of a term's element for given values of all letters.
  std::int64_t position(const std::string& term, const Dims& letters) const {
    Dims index;
    for (const char letter : term) index.push_back(letters[letter - 'a']);
    return position_of(index, shape_of(term));
  }
  /// The extents of the letters that occur; 1 for others.
  Dims loop() const {
    Dims all = Dims::filled(extents.size(), 1);
    for (const std::string& term : terms)
      for (const char letter : term) all[letter - 'a'] = extents[letter - 'a'];
    return all;
  }
};

class RandomEinsum : public RandomCases {
 protected:
  static AssertionResult check_case(RandomCase& c) {
    const Equation equation(c);
    c.note(equation.text());
    std::vector<RandomTensor> operands;
    std::vector<Tensor> inputs;
    for (const std::string& term : equation.terms) {
      operands.push_back(c.tensor(equation.shape_of(term)));
      inputs.push_back(leaf(operands.back()));
    }
    const Shape shape = equation.shape_of(equation.result);
    const RandomTensor dy = c.tensor(shape);
    Expected y(numel(shape));
    std::vector<Expected> gradients;
    for (const RandomTensor& each : operands) gradients.emplace_back(each.tensor.numel());
    const Dims loop = equation.loop();
    for (std::int64_t i = 0; i < numel(loop); ++i) {
      const Dims letters = index_of(i, loop);
      const auto value = [&](std::size_t k) {
        return at(operands[k].values, equation.position(equation.terms[k], letters));
      };
      const std::int64_t to = equation.position(equation.result, letters);
      double product = 1;
      for (std::size_t k = 0; k < operands.size(); ++k) product *= value(k);
      y.add(to, product);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        double others = at(dy.values, to);
        for (std::size_t m = 0; m < operands.size(); ++m)
          if (m != k) others *= value(m);
        gradients[k].add(equation.position(equation.terms[k], letters), others);
      }
    }
    const DType dtype = c.setting().dtype;
    // Each pair's product is rounded to the dtype.
    const double allowed =
        8 * test::rounding(dtype) + 4 * sum_tolerance(dtype, static_cast<double>(numel(loop)));
    const Tensor output = einsum(equation.text(), inputs);
    if (auto r = agrees(output, shape, y, allowed); !r) return r;
    output.backward(dy);
    for (std::size_t k = 0; k < operands.size(); ++k)
      if (auto r = agrees(inputs[k].grad(), operands[k].shape(), gradients[k], 2 * allowed); !r)
        return r << ": gradient of operand " << k;
    return AssertionSuccess();
  }
};

TEST_P(RandomEinsum, AgreesWithOneLoop) { run_cases(150, check_case); }
TEST_P(RandomEinsum, SlowAgreesWithOneLoop) { run_cases(15000, check_case); }

INSTANTIATE_TEST_SUITE_P(
    Backends, RandomEinsum,
    ::testing::ValuesIn(settings({DType::f64, DType::f32, DType::bf16, DType::f16})), setting_name);

}  // namespace
}  // namespace lockstep::testing
