#include <Python.h>
#include <c10/core/ScalarType.h>

namespace {

PyObject* answer(PyObject*, PyObject*) {
  return PyLong_FromLong(static_cast<long>(c10::elementSize(c10::kFloat)) * 10 + 2);
}

PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "answers", nullptr, -1, methods};

}  // namespace

#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)

PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
