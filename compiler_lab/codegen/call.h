// What the wrapper of a graph needs of CPython and of torch.
//
// Both are declared by hand. No header of theirs is read: that would take longer than the kernels take to compile, and Python's need not be
// installed. CPython's functions are those of its stable interface, which the process that loads this library has; torch's are handed in by
// address, for its libraries are not linked. Tensors go to aten as windows: tensors over memory that somebody else owns, made once for each
// address and kept, since the sizes of a graph never change and parameters never move.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

typedef intptr_t Py_ssize_t;
struct PyObject { Py_ssize_t references; PyObject* type; };  // attach() makes sure that objects begin like this
struct PyThreadState;
typedef PyObject* (*PyFastCall)(PyObject*, PyObject* const*, Py_ssize_t);
struct PyMethodDef { const char* name; PyFastCall call; int flags; const char* doc; };

extern "C" {
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
PyObject* PyObject_Type(PyObject*);
int PyObject_IsInstance(PyObject*, PyObject*);
PyObject* PyObject_Call(PyObject*, PyObject*, PyObject*);
PyObject* PyObject_CallFunctionObjArgs(PyObject*, ...);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
PyObject* PyTuple_New(Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
PyObject* PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject*);
Py_ssize_t PyList_Size(PyObject*);
PyObject* PyList_GetItem(PyObject*, Py_ssize_t);
int PyList_SetSlice(PyObject*, Py_ssize_t, Py_ssize_t, PyObject*);
PyObject* PyLong_FromLong(long);
void* PyLong_AsVoidPtr(PyObject*);
PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject*, PyObject*);
PyObject* PyErr_Format(PyObject*, const char*, ...);
PyObject* PyErr_NoMemory(void);
PyObject* PyErr_Occurred(void);
PyThreadState* PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState*);
extern PyObject _Py_NoneStruct;
extern PyObject *PyExc_IndexError, *PyExc_MemoryError, *PyExc_RuntimeError, *PyExc_TypeError;
}

// From here on code is compiled as it is written: what a wrapper costs is what it calls, and optimised it would take longer to compile than the
// kernels do (24 calls of addmm: 0.5 s instead of 0.3; a call of one small kernel takes 0.1 us longer).
#ifdef __clang__
#pragma clang optimize off
#else
#pragma GCC optimize("O0")
#endif

namespace {

typedef void* H;   // AtenTensorHandle
struct Raised {};  // a Python exception is set

// Memory for intermediates, of all programs of the process: a call takes an arena off the list, makes it larger if it must, and puts it back.
// So there are as many as calls were ever under way at once, each as large as the largest call needed. Idle arenas are let go when a program is let
// go, and after a backward, for then memory is short: what the forward kept and the gradients are there while the loss is computed. The next
// call makes what it needs. ``native.py`` declares the same.
struct Arena { Arena* next; PyObject* tensor; char* memory; int64_t size; };
struct Pool { Arena* idle; };

struct Torch {  // in the order of ``native.FUNCTIONS``
  void* (*data)(PyObject*);
  int32_t (*window)(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, H*);
  int32_t (*drop)(H);
  int32_t (*pointer)(H, void**);
  int32_t (*strides)(H, int64_t**);
  int32_t (*empty)(int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, H*);
  int32_t (*copy)(H, H, int32_t);
  Pool* pool;
};
Torch torch;

// A tensor over memory: sizes and strides in elements, the offset from the buffer's first element, the dtype as torch numbers it.
struct Window { int64_t dims; const int64_t *size, *stride; int64_t offset; int32_t dtype; };

// What a graph is: filled in by its text.
struct Unit { int inputs, boxed, owned, windows; int64_t arena; const Window* window; };

struct Owned {  // a tensor of one call: as Python's, as torch's, or both; and where its memory begins
  PyObject* object;
  H handle;
  void* at;
  void release() {
    if (object) Py_DecRef(object);
    if (handle) torch.drop(handle);
    *this = {};
  }
};

struct Made { H handle; void* at; };

struct State {  // what one call has for itself; calls that overlap have one each
  State* next;
  Arena* arena;  // while the call is under way
  PyObject *views, *viewed;  // the arena's buffers as Python's tensors, once Python asked for one, and the tensor that they are views of
  char* memory;
  PyObject** inputs;  // of a boxed call: owned
  Owned* owned;
  Made* made;
};

struct Graph {  // one program: what make() was given, and the states that no call uses
  const Unit* unit;
  PyObject *tensor, *parameter, *empty, *steal, *python, *constants, *layouts, *parts;
  State* free;
};

void check(bool ok) { if (!ok) throw Raised(); }

void* address(const Graph* g, PyObject* t) {  // of a tensor's first element
  if (t->type == g->tensor || t->type == g->parameter) return torch.data(t);
  int is = PyObject_IsInstance(t, g->tensor);
  check(is >= 0);
  if (!is) PyErr_Format(PyExc_TypeError, "call() takes tensors"), throw Raised();
  PyObject* method = PyObject_GetAttrString(t, "data_ptr");
  PyObject* number = method ? PyObject_CallFunctionObjArgs(method, nullptr) : nullptr;
  if (method) Py_DecRef(method);
  check(number);
  void* at = PyLong_AsVoidPtr(number);
  Py_DecRef(number);
  return at;
}

// A tensor keeps its arena's memory: of a large arena, that is let go with the call.
const int64_t LARGE = 1 << 20;

// An arena of this size stays: fresh memory of 32 MB and more is the system's, and each of its pages is a fault again.
const int64_t HUGE = 32 << 20;

void drop_views(State* s) {
  if (s->views) Py_DecRef(s->views);
  if (s->viewed) Py_DecRef(s->viewed);
  s->views = s->viewed = nullptr;
}

void discard(const Unit* u, State* s) {
  for (int i = 0; i < u->windows; i++) if (s->made[i].handle) torch.drop(s->made[i].handle);
  drop_views(s);
  free(s->inputs); free(s->owned); free(s->made); free(s);
}

State* new_state(Graph* g) {
  const Unit* u = g->unit;
  State* s = (State*)calloc(1, sizeof(State));
  if (s) {
    s->inputs = (PyObject**)calloc(u->inputs + 1, sizeof(PyObject*));
    s->owned = (Owned*)calloc(u->owned + 1, sizeof(Owned));
    s->made = (Made*)calloc(u->windows + 1, sizeof(Made));
    if (s->inputs && s->owned && s->made) return s;
    discard(u, s);
  }
  PyErr_NoMemory();
  throw Raised();
}

void let_go(Arena* a) {
  if (a->tensor) Py_DecRef(a->tensor);
  a->tensor = nullptr;
  a->size = 0;
}

void put_back(Arena* a) {
  a->next = torch.pool->idle;
  torch.pool->idle = a;
}

Arena* arena_for(Graph* g) {
  Arena* a = torch.pool->idle;
  if (a) torch.pool->idle = a->next;
  else if (!(a = (Arena*)calloc(1, sizeof(Arena)))) PyErr_NoMemory(), throw Raised();
  if (a->size >= g->unit->arena) return a;
  let_go(a);  // first: both at once are more than either call needs
  if (!(a->tensor = PyObject_Call(g->empty, PyTuple_GetItem(g->layouts, 0), nullptr))) { put_back(a); throw Raised(); }
  a->memory = (char*)torch.data(a->tensor);
  a->size = g->unit->arena;
  return a;
}

void empty_pool() {
  while (Arena* a = torch.pool->idle) {
    torch.pool->idle = a->next;
    let_go(a);
    free(a);
  }
}

struct Call {
  Graph* g;
  State* s;
  PyObject* const* given;

  Call(Graph* graph, PyObject* const* args, Py_ssize_t count) : g(graph), given(args) {
    const Unit* u = g->unit;
    PyObject* list = u->boxed && count == 1 ? args[0] : nullptr;
    Py_ssize_t n = list ? PyList_Size(list) : u->boxed ? -1 : count;
    if (list) check(n >= 0);
    if (n != u->inputs) PyErr_Format(PyExc_TypeError, "call() takes %d tensors%s", u->inputs, u->boxed ? " in one list" : ""), throw Raised();
    Arena* arena = u->arena ? arena_for(g) : nullptr;
    if ((s = g->free)) g->free = s->next;
    else try { s = new_state(g); } catch (const Raised&) { if (arena) put_back(arena); throw; }
    if ((s->arena = arena)) s->memory = arena->memory;
    if (!u->boxed) return;
    for (int i = 0; i < n; i++) Py_IncRef(s->inputs[i] = PyList_GetItem(list, i));
    given = s->inputs;
    PyList_SetSlice(list, 0, n, nullptr);
  }
  ~Call() {
    const Unit* u = g->unit;
    for (int i = 0; i < u->owned; i++) s->owned[i].release();
    if (u->boxed) for (int i = 0; i < u->inputs; i++) forget(i);
    if (s->arena) {
      const bool short_lived = u->boxed && s->arena->size < HUGE;
      if (s->views && (short_lived || s->arena->size >= LARGE)) drop_views(s);
      if (short_lived) let_go(s->arena);
      put_back(s->arena);
    }
    s->next = g->free;
    g->free = s;
  }

  void forget(int input) {  // an input that the call owns and has read for the last time
    if (s->inputs[input]) Py_DecRef(s->inputs[input]);
    s->inputs[input] = nullptr;
  }
  void* input(int i) { return address(g, given[i]); }
  void* constant(int i) { return address(g, PyTuple_GetItem(g->constants, i)); }

  void* fresh(int k, int layout) {
    Owned& o = s->owned[k];
    check(o.object = PyObject_Call(g->empty, PyTuple_GetItem(g->layouts, layout), nullptr));
    return o.at = torch.data(o.object);
  }
  H window(int i, void* at) {
    Made& m = s->made[i];
    if (m.handle && m.at == at) return m.handle;
    if (m.handle) torch.drop(m.handle);
    m.handle = nullptr;
    const Window& w = g->unit->window[i];
    if (torch.window((char*)at, w.dims, w.size, w.stride, w.offset, w.dtype, 0, 0, &m.handle)) { m.handle = nullptr; throw std::bad_alloc(); }
    m.at = at;
    return m.handle;
  }
  // A result of aten, in the strides that ``i`` says: a copy where aten chose others.
  void* keep(int k, int i, H result) {
    Owned& o = s->owned[k];
    o.handle = result;
    const Window& w = g->unit->window[i];
    int64_t* strides = nullptr;
    if (torch.strides(result, &strides)) throw std::bad_alloc();
    bool same = true;
    for (int64_t d = 0; d < w.dims; d++) same &= strides[d] == w.stride[d] || w.size[d] == 1;
    if (!same) {
      H copy = nullptr;
      if (torch.empty(w.dims, w.size, w.stride, w.dtype, 0, 0, &copy)) throw std::bad_alloc();
      o.handle = copy;
      int32_t failed = torch.copy(copy, result, 0);
      torch.drop(result);
      if (failed) throw std::bad_alloc();
    }
    if (torch.pointer(o.handle, &o.at)) throw std::bad_alloc();
    return o.at;
  }
  void release(int k) { s->owned[k].release(); }

  // ---- Python's side ----

  PyObject* object(int k) {
    Owned& o = s->owned[k];
    if (!o.object) {
      PyObject *capsule = PyCapsule_New(o.handle, nullptr, nullptr), *list = capsule ? PyList_New(1) : nullptr;
      check(list);
      PyList_SetItem(list, 0, capsule);
      PyObject* made = PyObject_CallFunctionObjArgs(g->steal, list, nullptr);
      Py_DecRef(list);
      check(made);
      o.handle = nullptr;  // it belongs to the object now
      Py_IncRef(o.object = PyList_GetItem(made, 0));
      Py_DecRef(made);
    }
    return o.object;
  }
  PyObject* part(int i) {  // a function in Python; its text is compiled when the first is asked for
    if (!g->parts) check(g->parts = PyObject_CallFunctionObjArgs(g->python, nullptr));
    return PyTuple_GetItem(g->parts, i);
  }
  PyObject* view(int i) {
    PyObject* tensor = s->arena ? s->arena->tensor : nullptr;  // none where all buffers are empty
    if (!s->views || s->viewed != tensor) {
      drop_views(s);
      check(s->views = PyObject_CallFunctionObjArgs(part(0), tensor, nullptr));
      if ((s->viewed = tensor)) Py_IncRef(tensor);
    }
    return PyTuple_GetItem(s->views, i);
  }
  PyObject* constant_object(int i) { return PyTuple_GetItem(g->constants, i); }

  struct Results {  // of a part: a tuple
    PyObject* tuple;
    ~Results() { if (tuple) Py_DecRef(tuple); }
    PyObject* give() { PyObject* made = tuple; tuple = nullptr; return made; }
  };
  template <class... T> Results python(int i, T... tensors) {
    PyObject* made = PyObject_CallFunctionObjArgs(part(i), tensors..., nullptr);
    check(made);
    return {made};
  }
  void* take(int k, const Results& from, int i) {
    Owned& o = s->owned[k];
    Py_IncRef(o.object = PyTuple_GetItem(from.tuple, i));
    return o.at = address(g, o.object);
  }
};

struct Answer {  // the tuple of results
  PyObject* tuple;
  explicit Answer(int n) : tuple(PyTuple_New(n)) { check(tuple); }
  ~Answer() { if (tuple) Py_DecRef(tuple); }
  void set(int i, PyObject* value) { Py_IncRef(value); PyTuple_SetItem(tuple, i, value); }
  PyObject* give() { PyObject* made = tuple; tuple = nullptr; return made; }
};

[[noreturn]] void fail(int code) {  // what aten raises where a kernel found this
  if (code == 1) PyErr_Format(PyExc_IndexError, "index out of range in self");
  else if (code == 2) PyErr_Format(PyExc_MemoryError, "a kernel could not allocate its scratch memory");
  else PyErr_Format(PyExc_RuntimeError, "ZeroDivisionError");
  throw Raised();
}

// A long kernel or operator runs without Python's lock, so that other threads go on.
struct Unlocked {
  PyThreadState* thread;
  Unlocked() : thread(PyEval_SaveThread()) {}
  void lock() { PyEval_RestoreThread(thread); }
};

template <class Run> PyObject* guarded(Run run) {
  try { return run(); }
  catch (const Raised&) { return nullptr; }
  catch (const std::bad_alloc&) { return PyErr_NoMemory(); }
  catch (const std::exception& error) { return PyErr_Format(PyExc_RuntimeError, "%s", error.what()); }
}

void collect(PyObject* capsule) {
  Graph* g = (Graph*)PyCapsule_GetPointer(capsule, nullptr);
  while (State* s = g->free) { g->free = s->next; discard(g->unit, s); }
  empty_pool();
  PyObject* const held[] = {g->tensor, g->parameter, g->empty, g->steal, g->python, g->constants, g->layouts, g->parts};
  for (PyObject* o : held) if (o) Py_DecRef(o);
  delete g;
}

// The callable of a graph. ``given``: tensor, parameter, empty, steal, python, constants, layouts. Null without an exception where objects of
// this Python do not begin as declared here.
PyObject* attach(const Unit* unit, PyMethodDef* method, PyObject* given, void* const* functions) {
  PyObject* type = PyObject_Type(given);
  Py_DecRef(type);
  if (given->type != type) { Py_IncRef(&_Py_NoneStruct); return &_Py_NoneStruct; }
  memcpy((void*)&torch, functions, sizeof(Torch));
  Graph* g = new Graph();
  g->unit = unit;
  PyObject** fields[] = {&g->tensor, &g->parameter, &g->empty, &g->steal, &g->python, &g->constants, &g->layouts};
  for (int i = 0; i < 7; i++) Py_IncRef(*fields[i] = PyTuple_GetItem(given, i));
  PyObject* self = PyCapsule_New(g, nullptr, collect);
  if (!self) { delete g; return nullptr; }
  PyObject* made = PyCFunction_NewEx(method, self, nullptr);
  Py_DecRef(self);
  return made;
}

}  // namespace
