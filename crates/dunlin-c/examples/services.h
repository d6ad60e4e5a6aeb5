/* What the example server does, for it and its clients. */

#ifndef SERVICES_H
#define SERVICES_H

/* Answers with the request. */
#define ECHO 1
/* Divides the first byte of the request by the second; by zero is error 1 of the handler. */
#define DIVIDE 2
/* Answers "later" after so many milliseconds as the request says in digits. */
#define LATER 3

/* The region that it grants, and its length. */
#define TABLE "table"
#define TABLE_LENGTH 4096

#endif
